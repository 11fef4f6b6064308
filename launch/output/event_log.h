// The events of the ranks of a launch, as JSON, one line an event: LaunchOptions::event_log.
//
//   {"time":"2026-01-02T03:04:05.678901234+00:00","monotonic_ns":5678,"event":"rank_ended","host":"a","attempt":0,
//    "rank":1,"local_rank":1,"pid":4711,"signal":9,"seconds":12.3}
//
// The events of an attempt are attempt_started, rank_started and rank_ended of each rank, first_cause if a rank caused
// the attempt's failure, and then restart or end. Ranks that stay when another one fails (launch/link) add generation.
// A launcher among several adds notice.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_EVENT_LOG_H_
#define LOCKSTEP_LAUNCH_OUTPUT_EVENT_LOG_H_

#include <stdint.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {

// Each line is one write at the end of the file. No write blocks, except for the disk, and no failure of a write fails
// the launch: on_notice says it once, and later events are still tried. An object without a file does nothing.
class EventLog {
 public:
  // Opens or creates `options.event_log`; "" means no file. FailedPrecondition, with the path in the message.
  // `options` must outlive the object.
  static absl::StatusOr<std::unique_ptr<EventLog>> Create(const LaunchOptions& options);

  void AttemptStarted(int attempt, int nnodes, int node_rank);
  void RankStarted(int attempt, const RankFailure& rank);
  // `started_ns` is MonotonicNanos() at its start.
  void RankEnded(int attempt, const Outcome& outcome, int64_t started_ns);
  // Does nothing if no rank caused `status`.
  void FirstCause(int attempt, const absl::Status& status);
  // `reason` is for people. It names hosts that were lost, and ranks that failed.
  // `pause` is how long the ranks wait for it, if that is known before.
  void Restart(int attempt, absl::string_view reason, std::optional<absl::Duration> pause);
  // Logs the launcher's line about the job's nodes: one was lost, etcd does not answer.
  void Notice(absl::string_view message);
  // Ranks that stay have formed a generation, the first one without a reason.
  void Generation(int64_t generation, int world_size, absl::string_view reason);
  void End(const absl::Status& status);

 private:
  EventLog(const LaunchOptions& options, UniqueFd fd);
  // `fields` has the rest of the object, such as `,"attempt":0`.
  void Write(absl::string_view event, absl::string_view fields);

  const LaunchOptions& options_;
  const UniqueFd fd_;
  const std::string host_;
  bool torn_ = false;     // the last write left a part of a line
  bool noticed_ = false;  // on_notice has said that writes fail
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_EVENT_LOG_H_
