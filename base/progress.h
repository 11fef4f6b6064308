// Says on standard error what a program is doing, so that it is never silent for long.

#ifndef LOCKSTEP_BASE_PROGRESS_H_
#define LOCKSTEP_BASE_PROGRESS_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lockstep/base/heartbeat.h"

namespace lockstep {

// For programs whose standard output is for other programs. While it lives, it prints a line every `interval`:
//
//   Progress progress("dp");
//   progress.Doing("step 3 of 200");
//
//   dp: step 3 of 200, 3 s
//
// The time counts from the construction. The first line comes after `interval`, so a short run prints nothing. All
// methods may be called from any thread.
class Progress {
 public:
  explicit Progress(absl::string_view program, absl::Duration interval = absl::Seconds(3));

  void Doing(absl::string_view what);

 private:
  void Print();

  const std::string program_;
  const absl::Time began_;
  absl::Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  Heartbeat heartbeat_;  // the last member, since its thread uses the others
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PROGRESS_H_
