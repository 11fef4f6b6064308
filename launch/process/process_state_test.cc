#include "lockstep/launch/process/process_state.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

TEST(ParseProcessState, ReadsNamesWithParentheses) {
  const std::optional<ProcessState> process = ParseProcessState("4711 (a) R (b c)) D 12 4711 4711 0 -1");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, 4711);
  EXPECT_EQ(process->parent, 12);
  EXPECT_EQ(process->state, 'D');
  EXPECT_EQ(process->name, "a) R (b c)");
}

TEST(ParseProcessState, RefusesWhatIsNotOne) {
  for (const char* text : {"", "1", "1 (a)", "1 (a) ", "1 (a) S", "x (a) S 1", "1 (a) S x", "1 ) S 1", "1 (a) SS 1"}) {
    EXPECT_FALSE(ParseProcessState(text)) << text;
  }
}

TEST(NotEnded, NamesProcessesWithTheirStates) {
  EXPECT_EQ(NotEnded({}), "");
  EXPECT_EQ(NotEnded({{7, 1, 'D', "train"}, {9, 1, 'S', "a\nb"}}),
            "SIGKILL did not end pid 7 (\"train\", state D), pid 9 (\"a\\nb\", state S)");
  const std::string many = NotEnded(std::vector<ProcessState>(12, {7, 1, 'D', "x"}));
  EXPECT_TRUE(absl::EndsWith(many, "pid 7 (\"x\", state D) and 2 more")) << many;
}

TEST(ReadProcessState, OfAProcessThatIsEndingIsEitherThereOrNot) {
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    std::thread reaper([pid] { waitpid(pid, nullptr, 0); });
    while (const std::optional<ProcessState> process = ReadProcessState(pid)) EXPECT_EQ(process->pid, pid);
    reaper.join();
  }
}

}  // namespace
}  // namespace lockstep::launch
