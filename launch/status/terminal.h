// The whole window of a terminal, for a program that draws it again and again.

#ifndef LOCKSTEP_LAUNCH_STATUS_TERMINAL_H_
#define LOCKSTEP_LAUNCH_STATUS_TERMINAL_H_

#include <signal.h>
#include <stdint.h>
#include <termios.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/status/status_table.h"

namespace lockstep::launch {

// Returns whether text to stdout may have colours: it is a terminal that has them, and $NO_COLOR is not set.
bool StdoutHasColours();

// The window of stdout; {} if it is not a terminal.
TableSize StdoutSize();

// Until the object is gone, stdout shows another screen than before, typed keys do not appear, and SIGINT, SIGTERM,
// SIGHUP, SIGQUIT, SIGTSTP and SIGWINCH are blocked. Then all is as before. Create one at a time, in a process with one
// thread.
class Terminal {
 public:
  struct Input {
    char key = 0;    // 0: none was typed
    int signal = 0;  // one that ends the program; 0: none came
  };

  // FailedPrecondition: stdout is not a terminal. ResourceExhausted: no descriptor is free.
  static absl::StatusOr<std::unique_ptr<Terminal>> Create();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Shows these lines and nothing else. If the terminal takes nothing for a second, as after Ctrl-S, they are left out.
  void Draw(const std::vector<std::string>& lines);

  // Returns at the deadline, or earlier if a key was typed, the window has another size, or a signal came. After Ctrl-Z
  // it first stops the process with the old screen.
  Input Wait(int64_t deadline_ns);

 private:
  explicit Terminal(UniqueFd signals);
  void Enter();
  void Leave();
  void Stop();
  char ReadKey();

  const UniqueFd signals_;
  sigset_t earlier_mask_;
  termios earlier_;
  bool reads_keys_;  // stdin is a terminal too, and has not ended
  bool restores_;    // earlier_ is stdin's
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_TERMINAL_H_
