// Calls a function again and again while other code works.

#ifndef LOCKSTEP_BASE_HEARTBEAT_H_
#define LOCKSTEP_BASE_HEARTBEAT_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lockstep {

// While it lives, `beat` runs every `interval` on its own thread. If the system refuses the thread, it never runs.
class Heartbeat {
 public:
  Heartbeat(absl::Duration interval, std::function<void()> beat);
  // Waits for a beat that runs.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void Run();

  const absl::Duration interval_;
  const std::function<void()> beat_;
  absl::Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_HEARTBEAT_H_
