#include "lockstep/launch/status/terminal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"

namespace lockstep::launch {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
// The other screen, without a cursor and without line wrapping; and back.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l", kLeave[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr absl::Duration kDrawTimeout = absl::Seconds(1);

// Gives up if the terminal takes nothing for so long.
void Write(absl::string_view text) {
  while (!text.empty()) {
    pollfd ready = {STDOUT_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, PollTimeout(kDrawTimeout)) <= 0) return;
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;
    text.remove_prefix(written < 0 ? 0 : written);
  }
}

sigset_t OurSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignals) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

bool StdoutHasColours() {
  const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
  const bool is_refused = no_color && no_color[0] != '\0';
  return isatty(STDOUT_FILENO) && !is_refused && term && strcmp(term, "dumb") != 0;
}

TableSize StdoutSize() {
  TableSize size;
  winsize window = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return size;
  size.width = window.ws_col;
  size.height = window.ws_row;
  return size;
}

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Create() {
  if (!isatty(STDOUT_FILENO)) return absl::FailedPreconditionError("stdout is not a terminal");
  const sigset_t signals = OurSignals();
  UniqueFd fd = AboveStdio(UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)));
  if (!fd.valid()) return absl::ResourceExhaustedError(absl::StrCat("no signalfd: ", strerror(errno)));
  return std::unique_ptr<Terminal>(new Terminal(std::move(fd)));
}

Terminal::Terminal(UniqueFd signals) : signals_(std::move(signals)) {
  const sigset_t blocked = OurSignals();
  sigprocmask(SIG_BLOCK, &blocked, &earlier_mask_);
  restores_ = reads_keys_ = tcgetattr(STDIN_FILENO, &earlier_) == 0;
  Enter();
}

Terminal::~Terminal() {
  Leave();
  sigprocmask(SIG_SETMASK, &earlier_mask_, nullptr);
}

// Keys come one by one. Ctrl-C and Ctrl-Z stay signals.
void Terminal::Enter() {
  if (restores_) {
    termios keys = earlier_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  Write(kEnter);
}

void Terminal::Leave() {
  Write(kLeave);
  if (restores_) tcsetattr(STDIN_FILENO, TCSANOW, &earlier_);
}

void Terminal::Stop() {
  Leave();
  raise(SIGSTOP);
  Enter();
}

// Each line is cleared behind its text, and the window behind the last line, so that nothing flickers.
void Terminal::Draw(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : "\r\n", lines[i], "\x1b[K");
  Write(absl::StrCat(text, "\x1b[J"));
}

Terminal::Input Terminal::Wait(int64_t deadline_ns) {
  Input input;
  pollfd ready[] = {{signals_.get(), POLLIN, 0}, {reads_keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
  poll(ready, 2, PollTimeout(deadline_ns));
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGTSTP) {
      Stop();
    } else if (signal != SIGWINCH) {
      input.signal = signal;
    }
  }
  if (ready[1].revents != 0) input.key = ReadKey();
  return input;
}

char Terminal::ReadKey() {
  char key = 0;
  const ssize_t count = read(STDIN_FILENO, &key, 1);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) reads_keys_ = false;
  return count == 1 ? key : 0;
}

}  // namespace lockstep::launch
