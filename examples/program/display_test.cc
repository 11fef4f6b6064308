#include "lockstep/examples/program/display.h"

#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::examples {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

struct Shown {
  std::string text;
  int wait_status = 0;
};

// Returns what `body` shows on a terminal of 80 columns, and how its process ends.
Shown OnTerminal(const std::function<void()>& body) {
  int terminal;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  const UniqueFd owner(child == 0 ? -1 : terminal);
  if (child == 0) {
    alarm(20);
    body();
    _exit(0);
  }
  Shown shown;
  char buffer[256];
  for (ssize_t n; (n = read(terminal, buffer, sizeof(buffer))) > 0;) shown.text.append(buffer, n);
  waitpid(child, &shown.wait_status, 0);
  return shown;
}

TEST(Display, ASignalThatEndsTheProgramEndsTheBarsLineFirst) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Shown shown = OnTerminal([&] {
      Display display;
      display.Bar("Epoch: [0]", 1, 2, "loss 1");
      raise(signal);
    });
    EXPECT_THAT(shown.text, HasSubstr("Epoch: [0] [###############...............] 1/2  0:00:00  loss 1"));
    EXPECT_THAT(shown.text, EndsWith("loss 1\r\n"));
    ASSERT_TRUE(WIFSIGNALED(shown.wait_status));
    EXPECT_EQ(WTERMSIG(shown.wait_status), signal);
  }
}

TEST(Display, ItsEndEndsTheBarsLineOnce) {
  const Shown shown = OnTerminal([] {
    Display display;
    display.Bar("Epoch: [0]", 1, 2, "loss 1");
  });
  EXPECT_THAT(shown.text, EndsWith("loss 1\r\n"));
  EXPECT_EQ(shown.wait_status, 0);
}

TEST(Display, ALineTakesThePlaceOfTheBar) {
  const Shown shown = OnTerminal([] {
    Display display;
    display.Bar("Epoch: [0]", 1, 2, "loss 1");
    display.Say("done");
  });
  EXPECT_THAT(shown.text, EndsWith("loss 1\r\x1b[Kdone\r\n"));
}

TEST(Display, ABarHasTheTimeSinceTheFirstOfItsKind) {
  const Shown shown = OnTerminal([] {
    Display display;
    display.Bar("Epoch: [0]", 0, 2, "first batch ...");
    usleep(600'000);
    display.Bar("Epoch: [0]", 2, 2, "loss 1");
    display.Bar("Test:", 0, 2, "first batch ...");
  });
  EXPECT_THAT(shown.text, HasSubstr("0/2  0:00:00  first batch ..."));
  EXPECT_THAT(shown.text, HasSubstr("2/2  0:00:01  loss 1"));
  EXPECT_THAT(shown.text, HasSubstr("Test: [..............................] 0/2  0:00:00  first batch ..."));
}

TEST(Display, TheBarsTimeGoesOnWhileSomethingIsAwaited) {
  const Shown shown = OnTerminal([] {
    Display display;
    display.Await("Epoch: [0][1/2]");
    display.Bar("Epoch: [0]", 1, 2, "loss 1");
    usleep(2'600'000);
  });
  EXPECT_THAT(shown.text, HasSubstr("1/2  0:00:01  loss 1"));
  EXPECT_THAT(shown.text, HasSubstr("1/2  0:00:02  loss 1"));
}

TEST(Display, SaysWhatIsAwaitedAfterSilence) {
  ::testing::internal::CaptureStdout();
  {
    Display display;
    display.Say("Epoch: [0][1/2]");
    display.Await("Epoch: [0][1/2]\tnext batch ...");
    usleep(4'900'000);
    display.Say("Epoch: [0][2/2]");
  }
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), MatchesRegex("Epoch: .0..1/2.\n"
                                                                     "Epoch: .0..1/2.\tnext batch ...  0:00:0[45]\n"
                                                                     "Epoch: .0..2/2.\n"));
}

TEST(Display, ANameCannotMoveTheCursor) {
  const Shown shown = OnTerminal([] {
    Display display;
    display.Bar("a\x1b[2J", 1, 2, "b\n");
    display.Say("c\rd");
    display.Warn("e\x1b");
  });
  EXPECT_THAT(shown.text, HasSubstr("a\\x1b[2J ["));
  EXPECT_THAT(shown.text, HasSubstr("b\\n\r\x1b[Kc\\rd\r\n"));
  EXPECT_THAT(shown.text, EndsWith("e\\x1b\r\n"));
}

TEST(Display, LeavesTheSignalsThatTheProgramHandles) {
  const Shown shown = OnTerminal([] {
    signal(SIGTERM, [](int) { _exit(7); });
    Display display;
    display.Bar("Epoch: [0]", 1, 2, "loss 1");
    raise(SIGTERM);
  });
  EXPECT_EQ(WEXITSTATUS(shown.wait_status), 7);
}

}  // namespace
}  // namespace lockstep::examples
