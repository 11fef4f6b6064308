#include "lockstep/examples/program/display.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace lockstep::examples {

Display::Display() : terminal_(isatty(STDOUT_FILENO)) {}

void Display::Say(absl::string_view line) {
  EraseBar();
  absl::PrintF("%s\n", line);
  std::fflush(stdout);
}

void Display::Bar(absl::string_view before, int64_t done, int64_t all, absl::string_view after) {
  const absl::Time now = absl::Now();
  if (!terminal_ || (done != all && now - last_bar_ < absl::Milliseconds(100))) return;
  last_bar_ = now;
  bar_shown_ = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(kWidth * done / all);
  absl::PrintF("\r\x1b[K%s [%s%s] %d/%d  %s", before, std::string(filled, '#'), std::string(kWidth - filled, '.'), done,
               all, after);
  std::fflush(stdout);
}

void Display::EraseBar() {
  if (bar_shown_) absl::PrintF("\r\x1b[K");
  bar_shown_ = false;
}

}  // namespace lockstep::examples
