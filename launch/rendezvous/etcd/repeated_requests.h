// Requests that are repeated until they succeed: which are under way, since when each one is due, when to try again
// after an error, and what is known of a server that does not answer. It has no clock: `now` is MonotonicNanos().

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_REPEATED_REQUESTS_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_REPEATED_REQUESTS_H_

#include <stdint.h>

#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::launch::etcd {

struct Request {
  explicit Request(const char* name) : name(name) {}

  const char* const name;  // for the error after the deadline
  bool in_flight = false;
  int64_t since_ns = 0;  // the first try; 0: nothing is due
};

// Thread-compatible.
class RepeatedRequests {
 public:
  // `requests` must outlive the object. One may be repeated for `first` until any has succeeded, and for `later` from
  // then on. `seed` spreads the pauses of several agents.
  RepeatedRequests(std::vector<Request*> requests, absl::Duration first, absl::Duration later, size_t seed);

  static void Begin(Request* request, int64_t now);
  static void End(Request* request);
  // Ends the request, which has an answer.
  void Succeed(Request* request, int64_t now);
  // After an error all requests begin again when a pause of 50 ms to 1 s has passed.
  void Fail(const absl::Status& error, int64_t now);
  // The requests under way are cancelled. They begin again.
  void Drop();

  bool has_succeeded() const { return succeeded_ns_ != 0; }
  bool Pauses(int64_t now) const { return now < retry_ns_; }
  // The first request that has been repeated for too long; nullptr: there is none.
  const Request* Overdue(int64_t now) const;
  int64_t Patience() const { return has_succeeded() ? later_ns_ : first_ns_; }

  // When the waiting for an answer began; the largest number if nothing is due.
  int64_t WaitsSince() const;
  // Returns whether an answer is late, or the last one was an error.
  bool IsSilent(int64_t now) const;
  // The error since the last success, or that there was no answer.
  absl::string_view Why() const;
  const absl::Status& last_error() const { return last_error_; }

  // When the answers above may change without a call, or a pause ends.
  int64_t NextLook(int64_t now) const;

 private:
  const std::vector<Request*> requests_;
  const int64_t first_ns_, later_ns_;
  absl::Status last_error_;
  int64_t succeeded_ns_ = 0, failed_ns_ = 0;  // the last time; 0: never
  int64_t retry_ns_ = 0, pause_ns_ = 0;
  std::minstd_rand random_;
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_REPEATED_REQUESTS_H_
