#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_job.h"
#include "lockstep/launch/testing/processes.h"
#include "lockstep/launch/testing/rendezvous_suite.h"

// The shared tests.
namespace lockstep::launch::testing {
namespace {

etcd::testing::EtcdCluster& Cluster() {
  static const auto cluster = etcd::testing::EtcdCluster::Start(etcd::testing::EtcdClusterOptions());
  if (!cluster.ok()) {
    ADD_FAILURE() << cluster.status();
    exit(1);
  }
  return **cluster;
}

std::unique_ptr<RendezvousJob> NewJob() { return std::make_unique<etcd::testing::EtcdJob>(Cluster()); }

INSTANTIATE_TEST_SUITE_P(Etcd, RendezvousTest, ::testing::Values(NewJob));
INSTANTIATE_TEST_SUITE_P(Etcd, RendezvousSuccessionTest, ::testing::Values(NewJob));

using Agent = std::unique_ptr<Rendezvous>;
using etcd::EtcdOptions;
using etcd::EtcdRendezvous;
using etcd::testing::JoinAs;
using etcd::testing::NewJobOptions;

// The keys of the job, as etcd's JSON.
std::string KeysOf(const EtcdOptions& options) {
  const std::string prefix = absl::StrCat("/lockstep/launch/", options.job_id);
  const absl::StatusOr<std::string> keys =
      Cluster().Call(0, "kv/range",
                     absl::StrCat(R"({"key": ")", absl::Base64Escape(prefix + "/"), R"(", "range_end": ")",
                                  absl::Base64Escape(prefix + "0"), R"("})"));
  return keys.ok() ? *keys : std::string(keys.status().message());
}

// A process with an agent that leads, and decides "old" all the time as long as it believes that it leads. Call it
// while this process has one thread.
pid_t StartDecidingProcess(const EtcdOptions& options) {
  const pid_t pid = fork();
  if (pid != 0) {
    const std::string key = absl::Base64Escape(absl::StrCat("/lockstep/launch/", options.job_id, "/decision"));
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(KeysOf(options), key); }, kRendezvousLimit));
    return pid;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const absl::StatusOr<Agent> agent = EtcdRendezvous::Join(options);
  while (agent.ok()) {
    if ((*agent)->Look().leads) (*agent)->Decide(absl::StrCat("old ", absl::ToUnixMillis(absl::Now())));
    absl::SleepFor(absl::Milliseconds(1));
  }
  _exit(1);
}

void End(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(EtcdRendezvous, ALeaderThatWasStoppedDoesNotReplaceTheDecisionOfTheNextOne) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.agent_id = "old";
  const pid_t pid = StartDecidingProcess(options);
  const Agent agent = JoinAs(options, "new");
  const auto has_old = [](const auto& view) { return absl::StartsWith(view.decision, "old"); };
  ASSERT_TRUE(has_old(AwaitView(agent.get(), has_old)));
  kill(pid, SIGSTOP);
  ASSERT_TRUE(AwaitLead(agent.get()));
  agent->Decide("new");
  ASSERT_EQ(AwaitDecision(agent.get(), "new"), "new");
  kill(pid, SIGCONT);
  // The other agent decides every millisecond until it has heard that it does not lead.
  EXPECT_FALSE(has_old(AwaitView(agent.get(), has_old, absl::Seconds(2))));
  EXPECT_TRUE(agent->Look().leads);
  End(pid);
}

TEST(EtcdRendezvous, AnAgentWhoseProcessIsKilledIsReplaced) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.agent_id = "old";
  const pid_t pid = StartDecidingProcess(options);
  const Agent agent = JoinAs(options, "new");
  ASSERT_TRUE(absl::StartsWith(AwaitView(agent.get(), [](const auto& view) { return !view.decision.empty(); }).decision,
                               "old"));
  End(pid);
  EXPECT_TRUE(AwaitLead(agent.get()));
  EXPECT_TRUE(absl::StartsWith(agent->Look().decision, "old"));
}

TEST(EtcdRendezvous, AnAgentWhoseLeaseIsEndedAfterItsDeathIsReplacedAtOnce) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.agent_id = "old";
  options.ttl = absl::Seconds(40);
  const std::string folder = NewFolder();
  options.on_lease = [&](int64_t lease) { std::ofstream(folder + "lease") << lease << std::endl; };
  const pid_t pid = StartDecidingProcess(options);
  options.on_lease = nullptr;
  const Agent agent = JoinAs(options, "new");
  ASSERT_FALSE(AwaitView(agent.get(), [](const auto& view) { return !view.decision.empty(); }).decision.empty());
  End(pid);
  const absl::Time start = absl::Now();
  int64_t lease = 0;
  ASSERT_TRUE(absl::SimpleAtoi(absl::StripSuffix(ReadFile(folder + "lease"), "\n"), &lease));
  EXPECT_EQ(EtcdRendezvous::EndLease(options, lease), absl::OkStatus());
  EXPECT_TRUE(AwaitLead(agent.get()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST(EtcdRendezvous, AnAgentThatLosesItsLeaseSaysWhichOneFollows) {
  const EtcdOptions options = NewJobOptions(Cluster());
  std::mutex mutex;
  std::vector<int64_t> leases;
  const auto number = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return leases.size();
  };
  EtcdOptions with_leases = options;
  with_leases.on_lease = [&](int64_t lease) {
    const std::lock_guard<std::mutex> lock(mutex);
    leases.push_back(lease);
  };
  const Agent a = JoinAs(with_leases, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  ASSERT_EQ(number(), 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(EtcdRendezvous::EndLease(options, leases[0]), absl::OkStatus());
  ASSERT_TRUE(Eventually([&] { return number() == 2; }, kRendezvousLimit));
  EXPECT_NE(leases[0], leases[1]);
  EXPECT_TRUE(AwaitLead(a.get()));
}

// A server that is gone, and one that is stopped: the kernel accepts connections for it.
TEST(EtcdRendezvous, TheEndOfALeaseDoesNotNeedEveryServer) {
  EtcdOptions options = NewJobOptions(Cluster());
  std::atomic<int64_t> lease = 0;
  EtcdOptions with_lease = options;
  with_lease.on_lease = [&](int64_t granted) { lease = granted; };
  const Agent a = JoinAs(with_lease, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  const auto stopped = ListenOnLoopback(), gone = HoldPort();
  ASSERT_TRUE(stopped.ok() && gone.ok());
  options.endpoints = {absl::StrCat("http://127.0.0.1:", stopped->port), absl::StrCat("http://127.0.0.1:", gone->port)};
  options.ttl = absl::Seconds(3);
  const int64_t first = lease;
  const absl::Time start = absl::Now();
  const absl::Status status = EtcdRendezvous::EndLease(options, first);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "etcd http://127.0.0.1:")) << status;
  EXPECT_EQ(lease, first);
  options.endpoints.push_back(Cluster().endpoints()[0]);
  EXPECT_EQ(EtcdRendezvous::EndLease(options, first), absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return lease != first; }, kRendezvousLimit));
}

TEST(EtcdRendezvous, AHundredAgentsMeet) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.ttl = absl::Seconds(10);
  std::vector<Agent> agents;
  Texts expected;
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) {
    agents.push_back(JoinAs(options, absl::StrCat(i)));
    agents[i]->Post(absl::StrCat("text ", i));
    expected[absl::StrCat(i)] = absl::StrCat("text ", i);
  }
  Rendezvous* leader = nullptr;
  ASSERT_TRUE(Eventually(
      [&] {
        for (const Agent& agent : agents) leader = agent->Look().leads ? agent.get() : leader;
        return leader != nullptr;
      },
      kRendezvousLimit));
  ASSERT_EQ(AwaitTexts(leader, expected), expected);
  const absl::Time met = absl::Now();
  leader->Decide("go");
  for (const Agent& agent : agents) ASSERT_EQ(AwaitDecision(agent.get(), "go"), "go");
  std::cout << "all posts after " << met - start << ", the decision " << absl::Now() - met << " later\n";
  for (const Agent& agent : agents) agent->Leave(absl::Seconds(10));
}

// Its lease of `timeout` must be kept alive meanwhile.
TEST(EtcdRendezvous, TheDecisionStaysWhileSomebodyLeads) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.timeout = absl::Seconds(3);
  const Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  a->Decide("go");
  ASSERT_EQ(AwaitDecision(a.get(), "go"), "go");
  const auto is_gone = [](const auto& view) { return view.decision.empty(); };
  EXPECT_FALSE(is_gone(AwaitView(a.get(), is_gone, absl::Seconds(6))));
  EXPECT_EQ(a->Look().status, absl::OkStatus());
}

TEST(EtcdRendezvous, TheDecisionIsGoneSomeTimeAfterAllHaveVanished) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.timeout = absl::Seconds(3);
  Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  a->Decide("go");
  ASSERT_EQ(AwaitDecision(a.get(), "go"), "go");
  a.reset();
  EXPECT_TRUE(Eventually([&] { return !absl::StrContains(KeysOf(options), "kvs"); }, kRendezvousLimit));
}

TEST(EtcdRendezvous, ATextThatIsTooLongForEtcdIsAnErrorWithItsSize) {
  for (const size_t bytes : {size_t{1600000}, size_t{4000000}}) {
    const Agent a = JoinAs(NewJobOptions(Cluster()), "a");
    a->Post(std::string(bytes, 'x'));
    const absl::Status status = AwaitError(a.get());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("a text of ", bytes + 12, " bytes"))) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "1572864")) << status;
  }
}

TEST(EtcdRendezvous, ATextWithAWrongSignatureIsIgnoredAndNamedOnce) {
  EtcdOptions options = NewJobOptions(Cluster());
  options.secret = "the secret of this job";
  std::mutex mutex;
  std::vector<std::string> notices;
  options.on_notice = [&](const std::string& notice) {
    const std::lock_guard<std::mutex> lock(mutex);
    notices.push_back(notice);
  };
  const Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  const std::string forged = "/lockstep/launch/" + options.job_id + "/agents/forged";
  for (int i = 0; i < 3; ++i) {
    const std::string value = absl::StrCat("lockstep1 ", std::string(64, '0'), "\ntext ", i);
    ASSERT_TRUE(Cluster()
                    .Call(0, "kv/put",
                          absl::StrCat(R"({"key": ")", absl::Base64Escape(forged), R"(", "value": ")",
                                       absl::Base64Escape(value), R"("})"))
                    .ok());
  }
  a->Post("true");
  EXPECT_EQ(AwaitTexts(a.get(), {{"a", "true"}}), (Texts{{"a", "true"}}));
  const std::lock_guard<std::mutex> lock(mutex);
  EXPECT_EQ(notices, std::vector<std::string>{"etcd key " + forged +
                                              " was not written by an agent of this job: it is signed with another job "
                                              "secret; it is ignored"});
}

std::set<int> InheritedDescriptors() {
  std::set<int> fds;
  for (int fd = 3; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) fds.insert(fd);
  }
  return fds;
}

TEST(EtcdRendezvous, ProgramsThatAreStartedInheritNoDescriptor) {
  const EtcdOptions options = NewJobOptions(Cluster());
  const std::set<int> before = InheritedDescriptors();
  const Agent a = JoinAs(options, "a"), b = JoinAs(options, "b");
  a->Post("a");
  b->Post("b");
  ASSERT_TRUE(Eventually([&] { return a->Look().agents.size() + b->Look().agents.size() == 2; }, kRendezvousLimit));
  EXPECT_EQ(InheritedDescriptors(), before);
}

TEST(EtcdRendezvous, IdsWithSlashesAreDifferentJobs) {
  EtcdOptions options = NewJobOptions(Cluster());
  const Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  options.job_id += "/agents";
  const Agent b = JoinAs(options, "b");
  ASSERT_TRUE(AwaitLead(b.get()));
  b->Decide("of b");
  ASSERT_EQ(AwaitDecision(b.get(), "of b"), "of b");
  a->Post("a");
  EXPECT_EQ(AwaitTexts(a.get(), {{"a", "a"}}), (Texts{{"a", "a"}}));
}

TEST(EtcdRendezvous, JoinNamesAWrongOption) {
  const auto error = [](const std::function<void(EtcdOptions*)>& change) {
    EtcdOptions options = NewJobOptions(Cluster());
    options.agent_id = "a";
    change(&options);
    return std::string(EtcdRendezvous::Join(options).status().message());
  };
  EXPECT_EQ(error([](EtcdOptions* o) { o->endpoints = {}; }), "etcd: no endpoint is given");
  EXPECT_EQ(error([](EtcdOptions* o) { o->job_id = ""; }), "etcd: the job has no id");
  EXPECT_EQ(error([](EtcdOptions* o) { o->agent_id = ""; }), "etcd: the agent has no id");
  EXPECT_EQ(error([](EtcdOptions* o) { o->ca = "/nowhere/ca.pem"; }),
            "etcd: the file of certificate authorities /nowhere/ca.pem cannot be read: No such file or directory");
  EXPECT_EQ(error([](EtcdOptions* o) { o->ttl = absl::Milliseconds(10); }),
            "etcd: the time to live is 10ms, expected at least 1s");
  EXPECT_EQ(error([](EtcdOptions* o) { o->timeout = o->ttl; }),
            "etcd: the timeout is 2s, expected more than the time to live, 2s, and at most 24h");
}

}  // namespace
}  // namespace lockstep::launch::testing
