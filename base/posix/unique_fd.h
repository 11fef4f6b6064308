// Owns a file descriptor and closes it.

#ifndef LOCKSTEP_BASE_POSIX_UNIQUE_FD_H_
#define LOCKSTEP_BASE_POSIX_UNIQUE_FD_H_

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace lockstep {

// A function that makes a descriptor returns one of these:
//
//   const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
//   if (!file.valid()) return absl::ErrnoToStatus(errno, path);
//   return ReadAll(file.get());
//
// Closing does not change errno, so a function may return an invalid one and the errno of the call that failed.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor to an owner outside of C++, such as fdopen().
  int Release() { return std::exchange(fd_, -1); }
  // Returns 0, or the error of close(), after which the descriptor is closed too.
  int Close() {
    if (!valid()) return 0;
    const int before = errno;
    const int error = close(Release()) == 0 ? 0 : errno;
    errno = before;
    return error;
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

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_UNIQUE_FD_H_
