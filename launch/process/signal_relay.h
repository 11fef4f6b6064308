// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 of this process as bytes on a descriptor, for as long as the
// object lives.
//
// It installs handlers and does not use signalfd, which needs the signals to be blocked in every thread: a library
// cannot ask that of its caller.

#ifndef LOCKSTEP_LAUNCH_PROCESS_SIGNAL_RELAY_H_
#define LOCKSTEP_LAUNCH_PROCESS_SIGNAL_RELAY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

// Several may live at once, in any threads; each gets every signal. The first installs the handlers, the last
// puts the earlier ones back. A signal that was ignored (as under nohup) stays ignored.
class SignalRelay {
 public:
  // ResourceExhausted: no descriptor is free, or 64 relays exist already.
  static absl::StatusOr<std::unique_ptr<SignalRelay>> Create();
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  // Readable when a signal has come.
  int fd() const { return read_end_.get(); }

  // The next signal that came, 0 if none. Does not block.
  int Take();

 private:
  SignalRelay(UniqueFd read_end, UniqueFd write_end, int slot);

  const UniqueFd read_end_;
  const UniqueFd write_end_;
  const int slot_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_SIGNAL_RELAY_H_
