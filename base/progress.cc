#include "lockstep/base/progress.h"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/printable.h"

namespace lockstep {

Progress::Progress(absl::string_view program, absl::Duration interval)
    : program_(program), began_(absl::Now()), what_("starting"), heartbeat_(interval, [this] { Print(); }) {}

void Progress::Doing(absl::string_view what) {
  MutexLock lock(mutex_);
  what_ = std::string(what);
}

void Progress::Print() {
  MutexLock lock(mutex_);
  const int64_t seconds = absl::ToInt64Seconds(absl::Now() - began_ + absl::Milliseconds(500));
  // One call, so that the line stays whole beside lines of other processes.
  std::fputs(absl::StrFormat("%s: %s, %d s\n", program_, Printable(what_), seconds).c_str(), stderr);
}

}  // namespace lockstep
