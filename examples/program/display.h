// Prints a program's lines on standard output and, on a terminal, a progress bar below them.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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
  Display(Display&& other) noexcept;
  Display& operator=(Display&& other) noexcept;

  // Returns whether standard output is a terminal.
  bool terminal() const;

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
  class Screen;

  std::unique_ptr<Screen> screen_;  // null after a move
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_DISPLAY_H_
