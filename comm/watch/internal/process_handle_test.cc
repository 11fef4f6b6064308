#include "lockstep/comm/watch/internal/process_handle.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/testing/process.h"
#include "lockstep/comm/watch/internal/endpoint.h"

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

int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd"), end;
  return std::distance(all, end);
}

TEST(ProcessHandle, TellsTheSameIfItWasLeftToAConnection) {
  Endpoint endpoint;
  const UniqueFd listener = ListenOnThisHost(endpoint).value();
  Process process([&](const Process::Say& say) {
    const UniqueFd connection = Connect("rank 0", endpoint, absl::Now() + absl::Seconds(20)).value();
    say(EncodeIdentity(IdentityOfThisProcess(1)));
    pause();
    return connection.get();
  });
  const RankIdentity identity = DecodeIdentity(process.AwaitLine("")->text).value();
  const UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const ProcessHandle kept = HandleOf(identity);
  const int64_t before = OpenDescriptors();
  ProcessHandle left = HandleOf(identity);
  left.LeaveTo(connection.get());
  EXPECT_THAT(OpenDescriptors() - before, AnyOf(0, 1));  // before Linux 6.16 it keeps its own
  EXPECT_EQ(left.Fate(), "");
  process.Signal(SIGKILL);
  process.Wait();
  left.TakeFrom(connection.get());
  EXPECT_EQ(left.Fate(), kept.Fate());
}

TEST(ProcessHandle, KeepsItsOwnIfTheConnectionIsToAnotherProcess) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd end(ends[0]), other_end(ends[1]);
  Process process = Sleeper();
  ProcessHandle handle = HandleOf(process);
  const int64_t before = OpenDescriptors();
  handle.LeaveTo(end.get());
  EXPECT_EQ(OpenDescriptors(), before);
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
