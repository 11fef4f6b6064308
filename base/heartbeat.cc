#include "lockstep/base/heartbeat.h"

#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/thread.h"

namespace lockstep {

Heartbeat::Heartbeat(absl::Duration interval, std::function<void()> beat)
    : interval_(interval), beat_(std::move(beat)) {
  absl::StatusOr<std::thread> thread = StartThread("a heartbeat", [this] { Run(); });
  if (thread.ok()) thread_ = *std::move(thread);
}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&ends_), interval_)) return;
    }
    beat_();
  }
}

}  // namespace lockstep
