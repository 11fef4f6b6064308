// Keeps writes from ending the process.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_HELD_SIGNALS_H_
#define LOCKSTEP_LAUNCH_OUTPUT_HELD_SIGNALS_H_

#include <signal.h>

namespace lockstep::launch {

// While it lives, this thread gets neither SIGPIPE (a reader is gone) nor SIGXFSZ (a file is at RLIMIT_FSIZE): a write
// returns EPIPE or EFBIG instead. Signals of others that were pending before stay pending.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int signal : kSignals) sigaddset(&held_, signal);
    sigpending(&before_);
    pthread_sigmask(SIG_BLOCK, &held_, &mask_);
  }
  ~HeldSignals() {
    sigset_t pending, ours;
    sigpending(&pending);
    sigemptyset(&ours);
    for (const int signal : kSignals) {
      if (sigismember(&pending, signal) == 1 && sigismember(&before_, signal) == 0) sigaddset(&ours, signal);
    }
    const timespec no_time = {};
    while (sigtimedwait(&ours, nullptr, &no_time) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  static constexpr int kSignals[] = {SIGPIPE, SIGXFSZ};

  sigset_t held_, before_, mask_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_HELD_SIGNALS_H_
