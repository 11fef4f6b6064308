// Owns a file descriptor and closes it. Every descriptor of this folder is opened with close-on-exec.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_UNIQUE_FD_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_UNIQUE_FD_H_

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace lockstep::launch::internal {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (valid()) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// `fd` itself, or where the caller runs with stdin, stdout or stderr closed and it took that place, a copy out of their
// way. Invalid, with errno set, where `fd` is or no copy could be made.
inline UniqueFd AboveStdio(UniqueFd fd) {
  if (!fd.valid() || fd.get() > STDERR_FILENO) return fd;
  return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_UNIQUE_FD_H_
