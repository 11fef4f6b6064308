#include "lockstep/launch/rendezvous/etcd/repeated_requests.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::launch::etcd {
namespace {

constexpr int64_t kFirstPauseNs = 50'000'000, kLongestPauseNs = 1'000'000'000, kCalmNs = 5'000'000'000;
// A request that takes longer is a silence of the server.
constexpr int64_t kQuickNs = 1'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

RepeatedRequests::RepeatedRequests(std::vector<Request*> requests, absl::Duration first, absl::Duration later,
                                   size_t seed)
    : requests_(std::move(requests)),
      first_ns_(absl::ToInt64Nanoseconds(first)),
      later_ns_(absl::ToInt64Nanoseconds(later)),
      random_(static_cast<unsigned>(seed)) {}

void RepeatedRequests::Begin(Request* request, int64_t now) {
  request->in_flight = true;
  if (request->since_ns == 0) request->since_ns = now;
}

void RepeatedRequests::End(Request* request) {
  request->in_flight = false;
  request->since_ns = 0;
}

void RepeatedRequests::Succeed(Request* request, int64_t now) {
  End(request);
  succeeded_ns_ = now;
}

void RepeatedRequests::Fail(const absl::Status& error, int64_t now) {
  Drop();
  last_error_ = error;
  pause_ns_ = now - failed_ns_ > kCalmNs ? kFirstPauseNs : std::min(2 * pause_ns_, kLongestPauseNs);
  failed_ns_ = now;
  // Many agents lose their connections at the same time.
  retry_ns_ = now + std::uniform_int_distribution<int64_t>(pause_ns_ / 2, pause_ns_)(random_);
}

void RepeatedRequests::Drop() {
  for (Request* request : requests_) request->in_flight = false;
}

const Request* RepeatedRequests::Overdue(int64_t now) const {
  for (const Request* request : requests_) {
    if (request->since_ns != 0 && now - request->since_ns >= Patience()) return request;
  }
  return nullptr;
}

int64_t RepeatedRequests::WaitsSince() const {
  int64_t since = kNever;
  for (const Request* request : requests_) {
    if (request->since_ns != 0) since = std::min(since, request->since_ns);
  }
  return since;
}

bool RepeatedRequests::IsSilent(int64_t now) const {
  const int64_t since = WaitsSince();
  return since <= now && (failed_ns_ > succeeded_ns_ || now - since >= kQuickNs);
}

absl::string_view RepeatedRequests::Why() const {
  return failed_ns_ > succeeded_ns_ ? last_error_.message() : "there was no answer";
}

int64_t RepeatedRequests::NextLook(int64_t now) const {
  int64_t next = retry_ns_ > now ? retry_ns_ : kNever;
  for (const Request* request : requests_) {
    if (request->since_ns == 0) continue;
    next = std::min(next, request->since_ns + Patience());
    if (request->since_ns + kQuickNs > now) next = std::min(next, request->since_ns + kQuickNs);
  }
  return next;
}

}  // namespace lockstep::launch::etcd
