#include "lockstep/examples/program/display.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/printable.h"

namespace lockstep::examples {
namespace {

// A signal handler has no other way to it. Lock-free, as handlers demand.
std::atomic<bool> bar_shown{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void EndLine() {
  if (!bar_shown.exchange(false)) return;
  const ssize_t written = write(STDOUT_FILENO, "\n", 1);
  static_cast<void>(written);  // a handler cannot report that the terminal has gone
}

void EndLineAndDie(int signal) {
  EndLine();
  raise(signal);  // whose default action is back
}

void EndLineBeforeSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = EndLineAndDie;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    sigaction(signal, &action, nullptr);
  }
}

// Printable() except for tabs, which separate a line's columns.
std::string PrintableLine(absl::string_view line) {
  return absl::StrJoin(absl::StrSplit(line, '\t'), "\t",
                       [](std::string* out, absl::string_view column) { *out += Printable(column); });
}

}  // namespace

std::string Clock(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Milliseconds(500));
  return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

Display::Display() : terminal_(isatty(STDOUT_FILENO)) {
  if (terminal_) EndLineBeforeSignals();
}

Display::~Display() { EndLine(); }

void Display::Say(absl::string_view line) {
  EraseBar();
  absl::PrintF("%s\n", PrintableLine(line));
  std::fflush(stdout);
}

void Display::Warn(absl::string_view line) {
  EraseBar();
  std::fflush(stdout);
  absl::FPrintF(stderr, "%s\n", PrintableLine(line));
}

void Display::Bar(absl::string_view before, int64_t done, int64_t all, absl::string_view after) {
  const absl::Time now = absl::Now();
  const bool is_first = before != before_;
  if (!terminal_ || (done != all && !is_first && now - last_bar_ < absl::Milliseconds(100))) return;
  last_bar_ = now;
  if (is_first) began_ = now;
  before_ = std::string(before);
  bar_shown = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(kWidth * done / all);
  absl::PrintF("\r\x1b[K%s [%s%s] %d/%d  %s  %s", Printable(before), std::string(filled, '#'),
               std::string(kWidth - filled, '.'), done, all, Clock(now - began_), Printable(after));
  std::fflush(stdout);
}

void Display::EraseBar() {
  if (bar_shown.exchange(false)) absl::PrintF("\r\x1b[K");
}

}  // namespace lockstep::examples
