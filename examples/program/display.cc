#include "lockstep/examples/program/display.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/printable.h"

namespace lockstep::examples {
namespace {

// The bar's time goes on with each tick. A line comes when a tick finds this silence, so within 5 s.
constexpr absl::Duration kTick = absl::Seconds(1), kSilence = absl::Milliseconds(3500);

// A signal handler reads this variable, so it must be lock-free.
std::atomic<bool> bar_shown{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void EndLine() {
  if (!bar_shown.exchange(false)) return;
  const ssize_t written = write(STDOUT_FILENO, "\n", 1);
  static_cast<void>(written);  // a handler cannot report that the terminal has gone
}

void EndLineAndDie(int signal) {
  EndLine();
  raise(signal);  // SA_RESETHAND has restored its default action
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

// Does what Printable() does, but keeps tabs, which separate a line's columns.
std::string PrintableLine(absl::string_view line) {
  return absl::StrJoin(absl::StrSplit(line, '\t'), "\t",
                       [](std::string* out, absl::string_view column) { *out += Printable(column); });
}

void EraseBar() {
  if (bar_shown.exchange(false)) absl::PrintF("\r\x1b[K");
}

}  // namespace

std::string Clock(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Milliseconds(500));
  return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

Display::Display() : terminal_(isatty(STDOUT_FILENO)), last_line_(absl::Now()) {
  if (terminal_) EndLineBeforeSignals();
}

Display::~Display() {
  heartbeat_.reset();
  EndLine();
}

void Display::Say(absl::string_view line) {
  MutexLock lock(mutex_);
  Print(line);
  last_line_ = last_shown_ = absl::Now();
}

void Display::Warn(absl::string_view line) {
  MutexLock lock(mutex_);
  EraseBar();
  std::fflush(stdout);
  absl::FPrintF(stderr, "%s\n", PrintableLine(line));
  last_line_ = last_shown_ = absl::Now();
}

void Display::Bar(absl::string_view before, int64_t done, int64_t all, absl::string_view after) {
  MutexLock lock(mutex_);
  const absl::Time now = absl::Now();
  const bool is_first = before != before_;
  if (!terminal_ || (done != all && !is_first && now - last_shown_ < absl::Milliseconds(100) && bar_shown)) return;
  if (is_first) began_ = now;
  before_ = std::string(before);
  after_ = std::string(after);
  done_ = done;
  all_ = all;
  PrintBar();
}

void Display::Await(absl::string_view what) {
  MutexLock lock(mutex_);
  awaited_ = std::string(what);
  if (!heartbeat_) heartbeat_ = std::make_unique<Heartbeat>(kTick, [this] { Beat(); });
}

void Display::Print(absl::string_view line) {
  EraseBar();
  absl::PrintF("%s\n", PrintableLine(line));
  std::fflush(stdout);
}

void Display::PrintBar() {
  last_shown_ = absl::Now();
  bar_shown = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(kWidth * done_ / all_);
  absl::PrintF("\r\x1b[K%s [%s%s] %d/%d  %s  %s", Printable(before_), std::string(filled, '#'),
               std::string(kWidth - filled, '.'), done_, all_, Clock(last_shown_ - began_), Printable(after_));
  std::fflush(stdout);
}

void Display::Beat() {
  MutexLock lock(mutex_);
  const absl::Time now = absl::Now();
  if (awaited_.empty()) return;
  if (bar_shown) {
    PrintBar();
  } else if (now - last_shown_ > kSilence) {
    Print(absl::StrCat(awaited_, "  ", Clock(now - last_line_)));
    last_shown_ = now;
  }
}

}  // namespace lockstep::examples
