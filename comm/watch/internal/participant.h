#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_PARTICIPANT_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_PARTICIPANT_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/watch/internal/arbiter.h"
#include "lockstep/comm/watch/internal/frame.h"
#include "lockstep/comm/watch/internal/stall_clock.h"

namespace lockstep::comm::internal {

// One rank's part of a watch: its position, the frames that it received from the hub, and its questions to the hub. It
// has no socket: the watch's thread passes it the hub's frames, and it passes its own to `send`.
//
// Its locks are the C++ library's, not Abseil's, so that ThreadSanitizer sees them.
class Participant {
 public:
  Participant(int rank, std::vector<RankIdentity> ranks, int hub, std::function<void(const absl::Status&)> on_failure,
              std::function<void(const Frame&)> on_stall, Clock::duration stall_after, Clock::duration first_question);

  const std::vector<RankIdentity>& ranks() const { return ranks_; }

  // Before any other method. `send` must not block, and must wake the watch's thread, so that it calls Tick().
  void set_send(std::function<void(const Frame&)> send) { send_ = std::move(send); }

  // For the watch's thread: a frame from the hub, or one that the thread makes itself when the hub is dead.
  void Deliver(const Frame& frame);
  // For the watch's thread: handles everything that is due, and returns the time of the next event.
  Clock::time_point Tick(Clock::time_point now);

  // As Watch's. Any thread.
  void Begin(int64_t sequence, const char* operation) {
    operations_[sequence % kOperations].store(operation, std::memory_order_relaxed);
    begun_.store(sequence, std::memory_order_release);
  }
  void End(int64_t sequence) {
    // Asynchronous calls may end out of order.
    if (sequence > ended_.load(std::memory_order_relaxed)) ended_.store(sequence, std::memory_order_relaxed);
  }
  absl::Status Explain(const absl::Status& error);
  absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout);
  absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline);
  void Abort(const absl::Status& cause);
  absl::Status failure();

  // Blocks until every rank has joined, the first cause, or the first error of `interruption`, which may be null.
  absl::Status AwaitWelcome(const std::function<absl::Status()>& interruption);
  Frame Farewell() const;
  bool hub_left();

 private:
  // An absl::Status counts its references in code that ThreadSanitizer does not see.
  struct Cause {
    absl::StatusCode code;
    std::string text;
    absl::Status ToStatus() const { return absl::Status(code, text); }
  };
  using Lock = std::unique_lock<std::mutex>;

  // The cause if the hub does not send one by `due`.
  struct Fallback {
    Clock::time_point due;
    Cause cause;
    bool blames_hub = false;  // for its silence
  };

  void SetCause(const Lock&, Cause cause);
  void FallBackAt(const Lock& lock, Fallback fallback);
  void FallBackWithoutHub(const Lock&);
  Cause LeftCause(const Frame& farewell) const;
  bool FallBackIfDue(const Lock& lock, Clock::time_point now);
  absl::Status AwaitCause(Lock& lock);
  // Sends `frame`, and returns the group's first cause, which is `fallback` if the hub does not answer.
  absl::Status Inquire(const Frame& frame, Clock::duration patience, Cause fallback, const absl::Status* own);
  void RecordFarewell(const Lock& lock, const Frame& frame);
  Frame AnswerTo(const Frame& question) const;
  std::string OperationOf(int64_t sequence) const;
  bool NeedsLeaver(const Lock&) const;
  void Report();

  const int rank_;
  const std::vector<RankIdentity> ranks_;
  const int hub_;
  const std::function<void(const absl::Status&)> on_failure_;
  const std::function<void(const Frame&)> on_stall_;
  std::function<void(const Frame&)> send_;
  const Clock::duration stall_after_;
  StallClock stall_clock_;  // of the watch's thread

  std::atomic<int64_t> begun_{-1};
  std::atomic<int64_t> ended_{-1};
  static constexpr int64_t kOperations = 64;
  std::array<std::atomic<const char*>, kOperations> operations_ = {};  // of the last calls, by sequence % kOperations

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool welcome_ = false;
  bool reported_ = false;
  bool hub_left_ = false;
  bool told_of_leaver_ = false;
  std::optional<Cause> cause_;
  std::optional<Cause> own_;  // this rank's own error, should it become the cause
  std::optional<Fallback> fallback_;
  std::optional<Frame> leaver_;  // the one that left first, by its last call
  int64_t awaited_ = -1;         // the latest call that this rank waits for in Agree()
  std::set<int64_t> agreed_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_PARTICIPANT_H_
