#ifndef LOCKSTEP_COMM_RENDEZVOUS_COLLECTOR_H_
#define LOCKSTEP_COMM_RENDEZVOUS_COLLECTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/rendezvous/board.h"
#include "lockstep/comm/rendezvous/roster.h"

namespace lockstep::comm {

// Reads the announcements of all ranks, and finds the Python ranks. One rank does this for all. Returns Board's errors,
// and Unavailable for a rank of this machine that has died.
class Collector {
 public:
  // `board` is borrowed. `me` is this process.
  Collector(Board* board, RankIdentity me, int world_size);

  bool complete() const { return missing_.empty(); }
  const std::vector<int>& missing() const { return missing_; }
  const Roster& roster() const { return roster_; }

  // Blocks until the first 128 ranks that are missing have all come, and reads their announcements. Returns false if
  // they have not in `patience`. Takes three requests.
  absl::StatusOr<bool> AwaitMore(absl::Duration patience);

  // Returns whether nobody has written to the store between the last call and this one. Takes one request.
  bool IsQuiet();

  // Looks for each missing rank, and checks whether the others still live. If no Lockstep rank is new, looks for Python
  // ranks too. Takes one or two requests for each missing rank.
  absl::Status Look();

  absl::Status CheckAlive() const;

 private:
  absl::Status Read(const std::vector<int>& ranks);
  absl::Status LookForLockstepRanks();
  void LookForPythonRanks();
  void Found(const std::vector<int>& ranks);

  Board* const board_;
  const RankIdentity me_;
  Roster roster_;
  std::vector<int> missing_;  // ascending
  int64_t keys_ = -1;         // in the store, at the last look at their number
};

// Unavailable if `identity`'s process is of this machine and has died. `me` is this process, and `place` the store's
// name for the message.
absl::Status CheckLives(const RankIdentity& identity, const RankIdentity& me, const std::string& place);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_COLLECTOR_H_
