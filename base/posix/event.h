// A descriptor that one thread makes readable for another one, which waits in poll().

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_EVENT_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_EVENT_H_

#include <errno.h>
#include <sys/eventfd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/tools/launch/internal/unique_fd.h"

namespace lockstep::launch::internal {

// Thread-safe.
class Event {
 public:
  // ResourceExhausted: no descriptor is free.
  static absl::StatusOr<Event> Create() {
    UniqueFd fd = AboveStdio(UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    if (fd.valid()) return Event(std::move(fd));
    return DescriptorError("launch: no eventfd", errno, absl::StatusCode::kResourceExhausted);
  }

  int fd() const { return fd_.get(); }
  void Set() const { eventfd_write(fd_.get(), 1); }
  void Clear() const {
    eventfd_t value;
    eventfd_read(fd_.get(), &value);
  }

 private:
  explicit Event(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_EVENT_H_
