// launch top in a pseudo terminal.

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;

constexpr char kEnter[] = "\x1b[?1049h", kLeave[] = "\x1b[?1049l";
constexpr absl::Duration kLong = absl::Seconds(60);

class TopTest : public testing::LaunchProgramTest {
 protected:
  ~TopTest() override {
    if (top_ > 0) kill(top_, SIGKILL), waitpid(top_, nullptr, 0);
    if (job_ > 0) kill(job_, SIGTERM), waitpid(job_, nullptr, 0);
  }

  // Starts a job, and `launch top` in a window of 80 columns and 24 lines.
  void StartTop() {
    job_ = Start({"--rdzv_id=bert", "--nproc_per_node=2", "bash", "-c", "echo $$ > $D/$RANK; exec sleep 200"});
    rank_ = AwaitPid(folder_ + "1");
    ASSERT_TRUE(Eventually([&] { return RunScript("$LAUNCH status") == 0; }, kLong));
    winsize window = {};
    window.ws_col = 80;
    window.ws_row = 24;
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    setenv("TERM", "xterm", 1);
    const char* const launch = getenv("LAUNCH");
    int terminal = -1;
    top_ = forkpty(&terminal, nullptr, nullptr, &window);
    terminal_ = UniqueFd(terminal);
    if (top_ == 0) {
      execl(launch, "launch", "top", nullptr);
      _exit(126);
    }
    tcgetattr(terminal_.get(), &before_);
  }

  void Read(absl::Duration limit) {
    pollfd ready = {terminal_.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) <= 0) return;
    char buffer[4096];
    const ssize_t count = read(terminal_.get(), buffer, sizeof(buffer));
    if (count > 0) shown_.append(buffer, count);
  }

  // Returns whether the terminal gets this text, after what it has had before.
  bool Shows(const std::string& text) {
    const absl::Time deadline = absl::Now() + kLong;
    while (!absl::StrContains(shown_, text) && absl::Now() < deadline) Read(absl::Milliseconds(100));
    return absl::StrContains(shown_, text);
  }

  int WaitForTop() {
    int status = 0;
    const bool ended = Eventually(
        [&] {
          Read(absl::ZeroDuration());
          return waitpid(top_, &status, WNOHANG) == top_;
        },
        kLong);
    if (!ended) return -1000;
    top_ = 0;
    Read(absl::ZeroDuration());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Returns the text after the old screen's return.
  std::string Below() const {
    const size_t left = shown_.rfind(kLeave);
    return left == std::string::npos ? "NOTHING" : shown_.substr(left + sizeof(kLeave) - 1);
  }

  bool KeysAreAsBefore() {
    termios now;
    tcgetattr(terminal_.get(), &now);
    return now.c_lflag == before_.c_lflag;
  }

  pid_t job_ = 0, rank_ = 0, top_ = 0;
  UniqueFd terminal_;
  termios before_;
  std::string shown_;
};

TEST_F(TopTest, DrawsUntilQIsTyped) {
  StartTop();
  ASSERT_TRUE(Shows("q: quit")) << shown_;
  EXPECT_THAT(shown_, HasSubstr(kEnter));
  EXPECT_THAT(shown_, HasSubstr("job bert: running for"));
  EXPECT_THAT(shown_, HasSubstr(absl::StrCat(rank_, "  running")));
  EXPECT_THAT(shown_, Not(HasSubstr(kLeave)));
  shown_.clear();
  ASSERT_TRUE(Shows("job bert")) << "it does not draw again";
  EXPECT_FALSE(KeysAreAsBefore()) << "typed keys would show";
  ASSERT_EQ(write(terminal_.get(), "xq", 2), 2);
  EXPECT_EQ(WaitForTop(), 0);
  EXPECT_TRUE(KeysAreAsBefore());
  EXPECT_THAT(Below(), HasSubstr(absl::StrCat(rank_, "  running"))) << "the last state stays";
}

TEST_F(TopTest, FollowsTheSizeOfTheWindow) {
  StartTop();
  ASSERT_TRUE(Shows("STEPS/S")) << shown_;
  winsize window = {};
  window.ws_col = 20;
  window.ws_row = 7;
  ASSERT_EQ(ioctl(terminal_.get(), TIOCSWINSZ, &window), 0);
  shown_.clear();
  ASSERT_TRUE(Shows("job bert: running fo\x1b[K")) << shown_;
  ASSERT_TRUE(Shows("and 2 more ranks")) << shown_;
  shown_.clear();
  window.ws_col = 100;
  window.ws_row = 30;
  ASSERT_EQ(ioctl(terminal_.get(), TIOCSWINSZ, &window), 0);
  EXPECT_TRUE(Shows("STEPS/S")) << shown_;
}

TEST_F(TopTest, ASignalRestoresTheScreen) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (job_ == 0) {
      StartTop();
    } else {
      shown_.clear();
      terminal_.Close();
      int terminal = -1;
      top_ = forkpty(&terminal, nullptr, nullptr, nullptr);
      terminal_ = UniqueFd(terminal);
      if (top_ == 0) {
        execl(getenv("LAUNCH"), "launch", "top", "bert", nullptr);
        _exit(126);
      }
    }
    ASSERT_TRUE(Shows("job bert")) << shown_;
    kill(top_, signal);
    EXPECT_EQ(WaitForTop(), 128 + signal);
    EXPECT_THAT(Below(), HasSubstr("job bert")) << signal;
  }
}

TEST_F(TopTest, CtrlZShowsTheOldScreenAndGoesOn) {
  StartTop();
  ASSERT_TRUE(Shows("q: quit")) << shown_;
  kill(top_, SIGTSTP);
  int status = 0;
  EXPECT_EQ(waitpid(top_, &status, WUNTRACED), top_);
  EXPECT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(KeysAreAsBefore());
  ASSERT_TRUE(Shows(kLeave));
  shown_.clear();
  kill(top_, SIGCONT);
  ASSERT_TRUE(Shows(kEnter));
  ASSERT_TRUE(Shows("q: quit"));
  ASSERT_EQ(write(terminal_.get(), "q", 1), 1);
  EXPECT_EQ(WaitForTop(), 0);
}

TEST_F(TopTest, EndsWithTheJob) {
  StartTop();
  ASSERT_TRUE(Shows("q: quit")) << shown_;
  kill(job_, SIGTERM);
  EXPECT_EQ(Wait(job_), 143);
  EXPECT_EQ(WaitForTop(), 0);
  EXPECT_THAT(Below(), HasSubstr(absl::StrCat("the launcher with pid ", job_, " has ended")));
  job_ = 0;
}

TEST_F(TopTest, WithoutATerminalItShowsTheJobOnce) {
  StartTop();
  EXPECT_EQ(RunScript("$LAUNCH top > $D/answer 2>&1"), 0);
  EXPECT_THAT(ReadFile(folder_ + "answer"),
              HasSubstr("the output is not a terminal, so the job is shown once\njob bert"));
}

}  // namespace
}  // namespace lockstep::launch
