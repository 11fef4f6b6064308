#include "lockstep/comm/environment/rank_identity.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm {
namespace {

using testing::Process;

// A child that has said who it is.
struct Child {
  explicit Child(const std::function<int()>& body)
      : process([&](const Process::Say& say) {
          say(EncodeIdentity(IdentityOfThisProcess(3)));
          return body();
        }),
        identity(DecodeIdentity(process.AwaitLine("")->text).value()) {}

  // The fate, once there is one.
  std::string Fate() const {
    std::string fate;
    for (int i = 0; i < 2000 && fate.empty(); ++i) {
      fate = FateOf(identity);
      if (fate.empty()) absl::SleepFor(absl::Milliseconds(5));
    }
    return fate;
  }

  Process process;
  RankIdentity identity;
};

int Pause() {
  while (true) pause();
}

TEST(RankIdentity, NamesRankHostAndProcess) {
  RankIdentity identity = IdentityOfThisProcess(7);
  EXPECT_EQ(identity.rank, 7);
  EXPECT_EQ(identity.pid, getpid());
  EXPECT_GT(identity.start_time, 0u);
  EXPECT_FALSE(identity.boot_id.empty());
  identity.host = "a";
  EXPECT_EQ(NameOf(identity), absl::StrCat("rank 7 (host a, pid ", getpid(), ")"));
}

TEST(RankIdentity, SurvivesItsText) {
  const RankIdentity identity = IdentityOfThisProcess(7);
  const RankIdentity read = DecodeIdentity(EncodeIdentity(identity)).value();
  EXPECT_EQ(read.rank, 7);
  EXPECT_EQ(read.host, identity.host);
  EXPECT_EQ(read.pid, identity.pid);
  EXPECT_EQ(read.start_time, identity.start_time);
  EXPECT_EQ(read.boot_id, identity.boot_id);
  EXPECT_EQ(read.pid_namespace, identity.pid_namespace);
  EXPECT_EQ(read.network_namespace, identity.network_namespace);
}

TEST(RankIdentity, RefusesTextOfAnotherKind) {
  for (const char* text : {"", "|", "0|a|1|2|b|p", "x|a|1|2|b|p|n", "0|a|x|2|b|p|n", "0|a|1|-2|b|p|n",
                           "0|a|1|2|b|p|n|more", "99999999999|a|1|2|b|p|n"}) {
    EXPECT_EQ(DecodeIdentity(text).status(),
              absl::InvalidArgumentError(absl::StrCat("expected the identity of a rank, found \"", text, "\"")));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 10000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = "0123|\0-a\n"[random() % 9];
    const auto read = DecodeIdentity(text);
    EXPECT_TRUE(!read.ok() || std::count(text.begin(), text.end(), '|') == 6);
  }
}

TEST(RankIdentity, OneHostIsOneKernelAndOneNetworkNamespace) {
  const RankIdentity here = IdentityOfThisProcess(0);
  RankIdentity there = here;
  EXPECT_TRUE(OnOneHost(here, there));
  there.network_namespace = "net:[1]";
  EXPECT_FALSE(OnOneHost(here, there));
  there = here;
  there.boot_id = "another";
  EXPECT_FALSE(OnOneHost(here, there));
  EXPECT_FALSE(OnOneHost(RankIdentity(), RankIdentity()));
}

TEST(FateOf, IsEmptyWhileTheProcessRuns) {
  EXPECT_EQ(FateOf(IdentityOfThisProcess(0)), "");
  const Child child(Pause);
  EXPECT_EQ(FateOf(child.identity), "");
}

TEST(FateOf, NamesTheSignal) {
  const Child child(Pause);
  child.process.Signal(SIGKILL);
  EXPECT_EQ(child.Fate(), "died: signal 9 (Killed)");
}

TEST(FateOf, NamesTheExitCode) {
  EXPECT_EQ(Child([] { return 3; }).Fate(), "exited with code 3");
  EXPECT_EQ(Child([] { return 0; }).Fate(), "exited with code 0");
}

TEST(FateOf, IsEmptyIfThisProcessHasNoDescriptorToLook) {
  const Child child(Pause);
  const lockstep::testing::FewDescriptors none(0);
  EXPECT_EQ(FateOfVisible(child.identity), "");
}

TEST(FateOf, KnowsOnlyTheDeathOfAReapedProcess) {
  Child child([] { return 3; });
  child.process.Wait();
  EXPECT_EQ(child.Fate(), "died");
}

TEST(FateOf, DoesNotTakeAReusedPidForTheFirst) {
  RankIdentity identity = IdentityOfThisProcess(0);
  ++identity.start_time;
  EXPECT_EQ(FateOf(identity), "died");
}

TEST(FateOf, IsEmptyWhereTheProcessCannotBeSeen) {
  RankIdentity identity = IdentityOfThisProcess(0);
  identity.pid = 1 << 30;
  EXPECT_EQ(FateOf(identity), "died");
  identity.boot_id = "another";
  EXPECT_EQ(FateOf(identity), "");
  identity = IdentityOfThisProcess(0);
  identity.pid = 1 << 30;
  identity.pid_namespace = "pid:[1]";
  EXPECT_EQ(FateOf(identity), "");
}

TEST(IsStopped, SeesAStoppedProcess) {
  const Child child(Pause);
  EXPECT_FALSE(IsStopped(child.identity));
  child.process.Signal(SIGSTOP);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, child.identity.pid, &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_TRUE(IsStopped(child.identity));
  EXPECT_EQ(FateOf(child.identity), "");
}

}  // namespace
}  // namespace lockstep::comm
