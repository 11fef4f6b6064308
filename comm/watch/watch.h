// A group's side channel: it finds out which rank died, hangs or lies, and tells every rank the same first cause.

#ifndef LOCKSTEP_COMM_WATCH_WATCH_H_
#define LOCKSTEP_COMM_WATCH_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/watch/rank_identity.h"

namespace lockstep::comm {

struct WatchOptions {
  int rank = 0;
  std::vector<RankIdentity> ranks;  // of every rank of the group, by rank
  std::string host;                 // where rank 0 listens when the ranks do not all share a host; an address or name

  // A store that all ranks share, with keys for this watch alone. get blocks until the key is there, or returns
  // DeadlineExceeded; it is asked again and again, with short deadlines.
  std::function<absl::Status(const std::string& key, const std::string& value)> set;
  std::function<absl::StatusOr<std::string>(const std::string& key, absl::Time deadline)> get;
  absl::Time deadline;  // for connecting

  // Called once, from the watch's own thread, with the group's first cause as soon as it is known here, also when it
  // came from this rank. Must not block, nor destroy the watch.
  std::function<void(const absl::Status&)> on_failure;
};

// Rank 0 is the hub: every other rank keeps one connection to it, over an abstract Unix socket where all ranks share a
// host, else over TCP on the interface that `host` names. Both sides prove that they
// know a random token from the store, without sending it: strangers' connections are dropped and disturb nobody. A
// connection that ends without a farewell is a death; rank 0 tells all others within milliseconds, and its own death is
// seen by all others at once.
//
// All methods may be called from any thread. One thread a watch reads the connections; no call waits for it but those
// whose comments say so.
class Watch {
 public:
  // Connects. All ranks of the group must call it. DeadlineExceeded naming the ranks that did not come; Unavailable if
  // rank 0 cannot be reached.
  static absl::StatusOr<std::unique_ptr<Watch>> Create(const WatchOptions& options);

  // Says farewell, so that leaving is no death to ranks that leave too; within 200 ms. A rank that still waits in a
  // call, or begins one later, fails with "rank 1 (...) left the group after all_reduce #12".
  ~Watch();

  // Notes that this rank has begun, or ended, the call with this number. `operation` must be a string literal.
  // Costs two relaxed stores.
  void Begin(int64_t sequence, const char* operation);
  void End(int64_t sequence);

  // What an error of this rank's own, seen at call `sequence`, was really about: blocks up to 1.5 s until the group's
  // first cause is known (a connection that broke because a rank died is that rank's death), and returns it. Where
  // nobody knows better, `error` itself becomes the cause, told to the others as
  // "rank 1 (...) failed: <message>" with code Aborted.
  absl::Status Explain(const absl::Status& error);

  // The cause when call `sequence` has run into its deadline: asks every rank where it is, for up to 1 s, and names
  // those that have not begun the call, with their last one, and those that do not answer (stopped, or unreachable).
  // DeadlineExceeded; every rank of the group gets the same.
  absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout);

  // Blocks until every rank has called this with the same `sequence`, or `deadline`. InvalidArgument on every rank,
  // with both fingerprints and the ranks that have them, where they differ. The error becomes the group's first cause.
  absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline);

  // Ends the group with `cause`, on all ranks: "rank 1 (...) failed: <message>". Does not block.
  void Abort(const absl::Status& cause);

  // The group's first cause, or OK.
  absl::Status failure() const;

 private:
  class Impl;
  explicit Watch(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WATCH_WATCH_H_
