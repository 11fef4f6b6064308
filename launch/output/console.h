// A standard stream of this process, to which the lines of ranks are written. A reader that does not read never blocks
// the writer.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_CONSOLE_H_
#define LOCKSTEP_LAUNCH_OUTPUT_CONSOLE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

class Console {
 public:
  // `fd` is STDOUT_FILENO or STDERR_FILENO. Opens the stream once more if the kernel allows that, since O_NONBLOCK
  // would change the stream for everybody who shares it.
  explicit Console(int fd);

  // Returns whether it is a terminal that shows colours: NO_COLOR is unset or empty.
  bool colored() const { return colored_; }

  // Append whole lines here.
  std::string* lines() { return &lines_; }

  // Writes lines for as long as the reader takes them. Returns 0, or the errno of the write that failed: afterwards
  // lines are discarded.
  int Write();

  // Returns whether lines are left to write. Then poll fd() for POLLOUT.
  bool waiting() const { return !lines_.empty(); }
  int fd() const { return fd_.get(); }

  // Discards the lines that are left, and all later ones.
  void Discard();

 private:
  bool CanWrite() const;
  size_t NextPiece(size_t start) const;

  UniqueFd fd_;
  bool is_file_ = false;       // never blocks
  bool non_blocking_ = false;  // write() returns EAGAIN instead of blocking
  bool colored_ = false;
  bool discards_ = false;
  std::string lines_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_CONSOLE_H_
