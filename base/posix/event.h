// A descriptor that one thread makes readable for another one, which waits in poll().

#ifndef LOCKSTEP_BASE_POSIX_EVENT_H_
#define LOCKSTEP_BASE_POSIX_EVENT_H_

#include <errno.h>
#include <sys/eventfd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {

//   LOCKSTEP_ASSIGN_OR_RETURN(const Event stop, Event::Create("the watch: no eventfd"));
//   pollfd fds[] = {{socket, POLLIN, 0}, {stop.fd(), POLLIN, 0}};
//   poll(fds, 2, -1);  // until Set() in another thread
//
// Thread-safe.
class Event {
 public:
  Event() = default;  // never readable, for a member that Create() fills later
  // ResourceExhausted, after the words `doing`: no descriptor is free.
  static absl::StatusOr<Event> Create(absl::string_view doing) {
    UniqueFd fd = AboveStdio(UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    if (fd.valid()) return Event(std::move(fd));
    return DescriptorError(doing, errno, absl::StatusCode::kResourceExhausted);
  }

  // Readable from Set() to Clear().
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

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_EVENT_H_
