// Prints a program's lines on standard output and, on a terminal, a progress bar below them.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::examples {

// "1:02:03".
std::string Clock(absl::Duration duration);

// Prints control characters except tabs as Printable() does. Not thread-safe, and a process may have only one. If a
// signal ends the program (SIGINT, SIGTERM or SIGHUP, unless the program handles it), the line of the bar is ended
// first. The destructor ends it too.
class Display {
 public:
  Display();
  ~Display();

  // Whether standard output is a terminal.
  bool terminal() const { return terminal_; }

  // Prints a line, in place of the bar if there is one.
  void Say(absl::string_view line);

  // The same on standard error.
  void Warn(absl::string_view line);

  // On a terminal, prints "`before` [####....] 12/50  0:01:02  `after`" in place of the previous bar. The time counts
  // from the first bar with the same `before`. Updates at most ten times a second, except for the first and the last
  // one. Does nothing if standard output is not a terminal. Requires: 0 <= done <= all, all > 0.
  void Bar(absl::string_view before, int64_t done, int64_t all, absl::string_view after);

 private:
  void EraseBar();

  bool terminal_;
  absl::Time last_bar_;
  std::string before_;  // the last bar's
  absl::Time began_;    // the first bar with it
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
