// A program's lines on standard output and, on a terminal, a bar below them.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::examples {

// "1:02:03".
std::string Clock(absl::Duration duration);

// Control characters except tabs are shown as Printable() has them. For one thread, and one at a time in a process. A
// signal that ends the program (SIGINT, SIGTERM or SIGHUP, unless the program handles it) ends the bar's line first,
// and so does the destructor.
class Display {
 public:
  Display();
  ~Display();

  // Whether standard output is a terminal.
  bool terminal() const { return terminal_; }

  // Prints a line, in the place of the bar if there is one.
  void Say(absl::string_view line);

  // The same on standard error.
  void Warn(absl::string_view line);

  // On a terminal "`before` [####....] 12/50  0:01:02  `after`" in the place of the bar before, with the time since
  // the first bar that had the same `before`. Ten times a second at the most, except for the first and the last one.
  // Elsewhere nothing. Requires: 0 <= done <= all, all > 0.
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
