#ifndef LOCKSTEP_COMM_INTERNAL_GROUP_WATCH_H_
#define LOCKSTEP_COMM_INTERNAL_GROUP_WATCH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

// The functions of comm::Watch that a group uses; see that header. As an interface it lets tests simulate the other
// ranks.
class GroupWatch {
 public:
  virtual ~GroupWatch() = default;
  virtual void Begin(int64_t sequence, const char* operation) = 0;
  virtual void End(int64_t sequence) = 0;
  virtual absl::Status Explain(const absl::Status& error) = 0;
  virtual absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout) = 0;
  virtual absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline) = 0;
  virtual void Abort(const absl::Status& cause) = 0;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_GROUP_WATCH_H_
