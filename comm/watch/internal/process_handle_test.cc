#include "lockstep/comm/watch/internal/process_handle.h"

#include <signal.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::internal {
namespace {

using ::testing::AnyOf;
using testing::Process;

Process Sleeper() {
  return Process([](const Process::Say& say) {
    say(EncodeIdentity(IdentityOfThisProcess(1)));
    return pause();
  });
}

ProcessHandle HandleOf(const RankIdentity& identity) { return ProcessHandle(identity, IdentityOfThisProcess(0)); }

ProcessHandle HandleOf(Process& process) { return HandleOf(DecodeIdentity(process.AwaitLine("")->text).value()); }

TEST(ProcessHandle, TellsHowAReapedProcessEnded) {
  Process process = Sleeper();
  const ProcessHandle handle = HandleOf(process);
  EXPECT_EQ(handle.Fate(), "");
  process.Signal(SIGKILL);
  process.Wait();
  // Kernels before 6.15 do not say.
  EXPECT_THAT(handle.Fate(), AnyOf("died: signal 9 (Killed)", "died"));
}

TEST(ProcessHandle, KnowsNothingOfAProcessThatWasGoneBefore) {
  Process process = Sleeper();
  const RankIdentity identity = DecodeIdentity(process.AwaitLine("")->text).value();
  process.Signal(SIGKILL);
  process.Wait();
  EXPECT_EQ(HandleOf(identity).Fate(), "died");
}

TEST(ProcessHandle, SaysNothingOfAProcessElsewhere) {
  RankIdentity identity = IdentityOfThisProcess(1);
  identity.boot_id = "another";
  EXPECT_EQ(HandleOf(identity).Fate(), "");
}

}  // namespace
}  // namespace lockstep::comm::internal
