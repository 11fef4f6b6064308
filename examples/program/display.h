// Prints a program's lines on standard output and, on a terminal, a progress bar below them.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lockstep/base/heartbeat.h"

namespace lockstep::examples {

// "1:02:03".
std::string Clock(absl::Duration duration);

// Prints control characters except tabs as Printable() does. Use it from one thread; a process may have only one. If a
// signal ends the program (SIGINT, SIGTERM or SIGHUP, unless the program handles it), the line of the bar is ended
// first. The destructor ends it too.
class Display {
 public:
  Display();
  ~Display();
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  // Returns whether standard output is a terminal.
  bool terminal() const { return terminal_; }

  // Prints a line, in place of the bar if there is one.
  void Say(absl::string_view line);

  // Does the same on standard error.
  void Warn(absl::string_view line);

  // On a terminal, prints "`before` [####....] 12/50  0:01:02  `after`" in place of the previous bar. The time counts
  // from the first bar with the same `before`. Updates at most ten times a second, except for the first and the last
  // one. Does nothing if standard output is not a terminal. Requires: 0 <= done <= all, all > 0.
  void Bar(absl::string_view before, int64_t done, int64_t all, absl::string_view after);

  // Until the next call of Await(), the display is never silent for more than 5 s. The time of the bar goes on. Without
  // a bar, it prints "`what`  0:00:05", with the time since the last Say() or Warn().
  void Await(absl::string_view what);

 private:
  void Print(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PrintBar() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Beat();

  const bool terminal_;
  absl::Mutex mutex_;
  absl::Time last_line_ ABSL_GUARDED_BY(mutex_);                                // that a caller gave
  absl::Time last_shown_ ABSL_GUARDED_BY(mutex_) = last_line_;                  // of any kind, or a bar
  std::string before_ ABSL_GUARDED_BY(mutex_), after_ ABSL_GUARDED_BY(mutex_);  // the last bar's
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0, all_ ABSL_GUARDED_BY(mutex_) = 0;  // the same
  absl::Time began_ ABSL_GUARDED_BY(mutex_);                                    // the first bar with `before_`
  std::string awaited_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Heartbeat> heartbeat_;  // the last member, since its thread uses the others
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
