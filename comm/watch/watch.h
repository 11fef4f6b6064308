// Finds out which rank of a group died, hangs, or made a different call, and tells every rank the same first cause.

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
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm {

// A call that lasts long.
struct Stall {
  // "all_reduce #12 has lasted 30s: rank 1 (host a, pid 7) has not begun it: its last call was broadcast #3", or "...:
  // every rank has begun it".
  std::string text;
  int rank = -1;          // the first rank that has not begun the call, or does not answer; -1: every rank has
  absl::Duration lasted;  // so far
};

struct WatchOptions {
  int rank = 0;
  std::vector<RankIdentity> ranks;  // every rank of the group, by rank
  int hub = 0;                      // the rank that the others connect to; the same on every rank
  std::string host;                 // address or name at which the hub listens if the ranks do not all share a host

  // A store shared by all ranks, with keys for this watch only. `get` blocks until the key exists, or returns
  // DeadlineExceeded. It is called repeatedly, with short deadlines.
  std::function<absl::Status(const std::string& key, const std::string& value)> set;
  std::function<absl::StatusOr<std::string>(const std::string& key, absl::Time deadline)> get;
  absl::Time deadline;  // for connecting

  // Unless it is null, asked several times a second while the rank connects. Its first error ends that.
  std::function<absl::Status()> interruption = nullptr;

  // Called once, from the watch's thread, with the group's first cause as soon as this rank knows it, even if the cause
  // came from this rank. Must not block, and must not destroy the watch.
  std::function<void(const absl::Status&)> on_failure;

  // Called from the watch's thread of every rank, when a call of some rank has lasted for `stall_after`, and then again
  // and again while it lasts: each third of this time, or somewhat more often. Null: nobody hears of it. Must not
  // block, and must not destroy the watch.
  std::function<void(const Stall&)> on_stall = nullptr;
  absl::Duration stall_after = absl::Seconds(30);
};

// One rank is the hub, and every other rank keeps one connection to it: an abstract Unix socket if all ranks share a
// host, and otherwise TCP on the interface of `host`. Both sides prove that they know a random token from the store,
// without sending it. Connections of strangers are closed and have no effect. If a connection closes without a
// farewell, the rank has died. The hub tells all other ranks within milliseconds, and they all see the hub's own death
// at once.
//
// All methods may be called from any thread. Each watch has one thread, which reads the connections. Calls do not wait
// for it unless their comments say so.
class Watch {
 public:
  // Connects. All ranks of the group must call it. DeadlineExceeded: ranks did not come; the message names them.
  // Unavailable: the hub cannot be reached.
  static absl::StatusOr<std::unique_ptr<Watch>> Create(WatchOptions options);

  // Announces departure, so that ranks that also leave do not report a death. Takes at most 200 ms. If another rank
  // still waits in a call, or begins one later, it fails with "rank 1 (...) left the group after all_reduce #12".
  ~Watch();

  // Records that this rank has begun, or ended, call number `sequence`. `operation` must be a string literal. Costs two
  // relaxed stores.
  void Begin(int64_t sequence, const char* operation);
  void End(int64_t sequence);

  // Finds the cause of an error on this rank. Blocks up to 1.5 s until the group's first cause is known, and returns
  // it. For example, if a connection broke because a rank died, the cause is that death. If no better cause is known,
  // `error` becomes the cause, and the other ranks get "rank 1 (...) failed: <message>" with code Aborted.
  absl::Status Explain(const absl::Status& error);

  // Finds the cause if call `sequence` has passed its deadline. Asks every rank for its current call, for up to 1 s.
  // Names the ranks that have not begun the call, with their last call, and the ranks that do not answer (stopped or
  // unreachable). Returns DeadlineExceeded, the same on every rank of the group.
  absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout);

  // Blocks until every rank has called this with the same `sequence`, or until `deadline`. If the fingerprints differ,
  // every rank gets InvalidArgument with both of them and their ranks. The error becomes the group's first cause.
  absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline);

  // Fails the group on all ranks: "rank 1 (...) failed: <message>". Does not block.
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
