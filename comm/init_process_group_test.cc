// InitProcessGroup with the Gloo backend. Each rank is a thread with separate sockets on loopback.

#include <ATen/ATen.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/internal/group_factory.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/secret/job_secret.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

using Group = absl::StatusOr<std::unique_ptr<ProcessGroup>>;

int FreePort() { return internal::BoundPort(internal::BindListenSocket("127.0.0.1", 0)->get()).value(); }

std::string TcpUrl() { return absl::StrCat("tcp://127.0.0.1:", FreePort()); }

// `size` ranks, `first_host` of them on the host of the first.
std::vector<RankIdentity> RanksOnHosts(int size, int first_host) {
  std::vector<RankIdentity> ranks(size);
  for (int rank = 0; rank < size; ++rank) ranks[rank].boot_id = rank < first_host ? "one" : "another";
  return ranks;
}

TEST(WatchHub, IsAnotherRankOfTheFirstHostInALargeGroup) {
  EXPECT_EQ(internal::WatchHub(RanksOnHosts(8, 8), 0), 0);
  EXPECT_EQ(internal::WatchHub(RanksOnHosts(1000, 1000), 0), 1);
  EXPECT_EQ(internal::WatchHub(RanksOnHosts(1000, 1000), 2), 3) << "each group has another one";
  EXPECT_EQ(internal::WatchHub(RanksOnHosts(1000, 3), 5), 2);
  EXPECT_EQ(internal::WatchHub(RanksOnHosts(1000, 1), 5), 0) << "the first rank is alone on its host";
}

// InitProcessGroup on one thread for each of `options`.
std::vector<Group> InitAll(const std::vector<InitOptions>& options) {
  std::vector<Group> groups(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { groups[i] = InitProcessGroup(options[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

InitOptions Options(const std::string& url, int rank, int world_size) {
  InitOptions options;
  options.init_method = url;
  options.rank = rank;
  options.world_size = world_size;
  options.timeout = absl::Seconds(20);
  return options;
}

void ExpectTheySum(std::vector<Group>& groups) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    ASSERT_TRUE(groups[i].ok()) << groups[i].status();
    threads.emplace_back([&, i] {
      ProcessGroup& group = **groups[i];
      const at::Tensor tensor = at::full({1000}, group.rank() + 1.0f);
      EXPECT_EQ(group.AllReduce(tensor), absl::OkStatus());
      EXPECT_EQ(tensor[999].item<float>(), group.size() * (group.size() + 1) / 2);
      EXPECT_EQ(group.Broadcast(tensor, 0), absl::OkStatus());
      std::vector<at::Tensor> outputs(group.size());
      for (at::Tensor& output : outputs) output = at::zeros({1000});
      EXPECT_EQ(group.AllGather(outputs, at::full({1000}, group.rank() * 1.0f)), absl::OkStatus());
      EXPECT_EQ(outputs.back()[0].item<float>(), group.size() - 1);
      EXPECT_EQ(group.Barrier(), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(InitProcessGroup, RanksMeetByTcp) {
  const std::string url = TcpUrl();
  std::vector<Group> groups = InitAll({Options(url, 0, 3), Options(url, 1, 3), Options(url, 2, 3)});
  ExpectTheySum(groups);
}

TEST(InitProcessGroup, RanksMeetByFile) {
  const std::string path = ::testing::TempDir() + absl::StrCat("/store_", getpid());
  std::vector<Group> groups = InitAll({Options("file://" + path, 1, 2), Options("file://" + path, 0, 2)});
  ExpectTheySum(groups);
}

TEST(InitProcessGroup, RanksMeetByTheEnvironment) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", absl::StrCat(FreePort()).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "0", 1);  // the option wins on the other
  InitOptions other;
  other.rank = 1;
  std::vector<Group> groups = InitAll({InitOptions{}, other});
  ExpectTheySum(groups);
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) unsetenv(name);
}

TEST(InitProcessGroup, Rank0TakesAnInheritedListeningSocket) {
  const int fd = internal::BindListenSocket("127.0.0.1", 0)->Release();
  const int port = internal::BoundPort(fd).value();
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", absl::StrCat(port).c_str(), 1);
  setenv("LOCKSTEP_MASTER_LISTEN_FD", absl::StrCat(fd).c_str(), 1);
  std::vector<Group> groups = InitAll({Options("env://", 0, 2), Options("env://", 1, 2)});
  ExpectTheySum(groups);
  setenv("MASTER_PORT", "1", 1);
  EXPECT_EQ(InitProcessGroup(Options("env://", 0, 1)).status().message(),
            absl::StrCat("rank 0 of 1: environment variable LOCKSTEP_MASTER_LISTEN_FD=", fd, " is bound to port ", port,
                         ", but MASTER_PORT=1"));
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_MASTER_LISTEN_FD"}) unsetenv(name);
}

// The addresses that some socket listens on at `port`, as /proc/net/tcp spells them.
std::string ListeningAddresses(int port) {
  std::string found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    FILE* file = fopen(table, "r");
    char line[512], address[64];
    unsigned line_port, state;
    while (file && fgets(line, sizeof(line), file)) {
      if (sscanf(line, " %*d: %63[0-9A-F]:%x %*[0-9A-F]:%*x %x", address, &line_port, &state) == 3 && state == 0x0A &&
          static_cast<int>(line_port) == port) {
        absl::StrAppend(&found, address, ";");
      }
    }
    if (file) fclose(file);
  }
  return found;
}

TEST(InitProcessGroup, AStoreOnLoopbackListensOnLoopbackOnly) {
  const int port = FreePort();
  const Group group = InitProcessGroup(Options(absl::StrCat("tcp://127.0.0.1:", port), 0, 1));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(ListeningAddresses(port), "0100007F;");
}

std::string Message(const InitOptions& options) { return std::string(InitProcessGroup(options).status().message()); }

TEST(InitProcessGroup, RefusesBadOptionsByName) {
  EXPECT_EQ(Message({}),
            "neither InitOptions::rank nor environment variable RANK is set; a launcher sets RANK and WORLD_SIZE: "
            "launch --nproc_per_node=2 init_process_group_test");
  InitOptions options = Options("tcp://127.0.0.1:29500", 2, 2);
  EXPECT_EQ(Message(options), "rank 2 is not below world size 2");
  options.rank = 1;
  options.world_size = -1;
  EXPECT_EQ(Message(options),
            "neither InitOptions::world_size nor environment variable WORLD_SIZE is set; a launcher sets RANK and "
            "WORLD_SIZE: launch --nproc_per_node=2 init_process_group_test");
  options.world_size = 2;
  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(Message(options), "rank 1 of 2: timeout is 0");
  EXPECT_EQ(Message(Options("env://", 0, 2)),
            "rank 0 of 2: init_method env:// needs environment variable MASTER_ADDR, which is not set");
  EXPECT_EQ(Message(Options("tcp://host", 0, 2)),
            "rank 0 of 2: init_method \"tcp://host\": expected tcp://host:port with a port from 1 to 65535");
  EXPECT_EQ(Message(Options("file://here", 0, 2)),
            "rank 0 of 2: init_method \"file://here\": expected file:// and an absolute path");
  EXPECT_EQ(Message(Options("mpi://", 0, 2)),
            "rank 0 of 2: init_method \"mpi://\": expected env://, tcp://host:port or file:///path");
}

TEST(InitProcessGroup, AnUnknownBackendListsThoseLinked) {
  InitOptions options = Options("tcp://127.0.0.1:1", 0, 1);
  options.backend = "smoke_signals";
  EXPECT_EQ(Message(options), "rank 0 of 1: backend \"smoke_signals\" is not linked into this program; linked: gloo");
  options.backend = "cpu:gloo,tpu:gloo";
  EXPECT_EQ(Message(options),
            "rank 0 of 1: backend \"cpu:gloo,tpu:gloo\": expected a form such as \"gloo\" or \"cpu:gloo,cuda:nccl\", "
            "found \"tpu:gloo\"");
  options.backend = "cpu:gloo,cpu:gloo";
  EXPECT_EQ(Message(options), "rank 0 of 1: backend \"cpu:gloo,cpu:gloo\" names cpu twice");
}

std::string StandardErrorOf(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

TEST(InitProcessGroup, RankZeroPrintsWhichBackendTheWorldHasAndWhy) {
  const auto init = [](int world_size, Debug debug) {
    const std::string url = TcpUrl();
    std::vector<InitOptions> options;
    for (int rank = 0; rank < world_size; ++rank) options.push_back(Options(url, rank, world_size));
    for (InitOptions& of_rank : options) of_rank.debug = debug;
    return InitAll(options);
  };
  std::vector<Group> groups;
  EXPECT_EQ(
      StandardErrorOf([&] { groups = init(2, Debug::kFromEnvironment); }),
      "rank 0 of 2: group \"world\" over cpu:gloo (all ranks on one host; shm is faster but not linked: depend on "
      "@lockstep//comm:cpu_backends, or lockstep::comm_cpu in CMake)\n");
  EXPECT_EQ(StandardErrorOf([&] { init(2, Debug::kOff); }), "");
  EXPECT_EQ(StandardErrorOf([&] { init(1, Debug::kFromEnvironment); }), "");
}

// Seven words in 0.8 s become the lines after 0.3 and 0.6 s.
TEST(InitProcessGroup, OneRankWritesALineAboutACallThatLastsLongAndOneEachTimeThatItHasLastedTwiceAsLong) {
  std::vector<InitOptions> options;
  const std::string url = TcpUrl();
  for (int rank = 0; rank < 2; ++rank) {
    options.push_back(Options(url, rank, 2));
    options[rank].debug = Debug::kOff;
    options[rank].stall_after = absl::Milliseconds(300);
  }
  std::vector<Group> groups = InitAll(options);
  ::testing::internal::CaptureStderr();
  std::thread waits([&] { EXPECT_TRUE((*groups[0])->Barrier().ok()); });
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_TRUE((*groups[1])->Barrier().ok());
  waits.join();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::MatchesRegex("(group \"world\": barrier #0 has lasted 0: rank 1 \\(.*\\) has not begun it, nor any "
                              "call before\n){2}"));
}

TEST(InitProcessGroup, ReadsHowCloselyToLookFromTheEnvironment) {
  setenv("TORCH_DISTRIBUTED_DEBUG", "detail", 1);
  const std::string url = TcpUrl();
  std::vector<Group> groups = InitAll({Options(url, 0, 2), Options(url, 1, 2)});
  ExpectTheySum(groups);
  setenv("TORCH_DISTRIBUTED_DEBUG", "LOUD", 1);
  EXPECT_EQ(Message(Options("tcp://127.0.0.1:1", 0, 1)),
            "rank 0 of 1: environment variable TORCH_DISTRIBUTED_DEBUG=LOUD: expected OFF, INFO or DETAIL");
  unsetenv("TORCH_DISTRIBUTED_DEBUG");
}

TEST(InitProcessGroup, TakesABackendForEachDeviceType) {
  InitOptions options = Options(TcpUrl(), 0, 1);
  options.backend = "cpu:gloo";
  std::vector<Group> groups = InitAll({options});
  ExpectTheySum(groups);
}

TEST(InitProcessGroup, APortInUseIsNamed) {
  const UniqueFd fd = internal::BindListenSocket("127.0.0.1", 0).value();
  const int port = internal::BoundPort(fd.get()).value();
  const Group group = InitProcessGroup(Options(absl::StrCat("tcp://127.0.0.1:", port), 0, 2));
  EXPECT_EQ(group.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(group.status().message(),
            absl::StrCat("rank 0 of 2: cannot listen on 127.0.0.1:", port,
                         ": Address already in use (by another program, another job, or a second rank 0 of this one)"));
}

TEST(InitProcessGroup, AnUnknownHostIsNamed) {
  EXPECT_THAT(Message(Options("tcp://no-such-host.invalid:29500", 0, 2)),
              HasSubstr("host \"no-such-host.invalid\" is unknown: "));
}

TEST(InitProcessGroup, TwoProcessesWithOneRankFailEveryRankAtOnce) {
  const std::string url = TcpUrl();
  const absl::Time start = absl::Now();
  const std::vector<Group> groups = InitAll({Options(url, 0, 3), Options(url, 1, 3), Options(url, 1, 3)});
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  int saw_it_first = 0;
  for (const Group& group : groups) {
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(group.status().message(), HasSubstr("rank 1: two processes were given this rank: host "));
    saw_it_first += group.status().code() == absl::StatusCode::kAlreadyExists;
  }
  EXPECT_EQ(saw_it_first, 1);
}

TEST(InitProcessGroup, RanksWithDifferentWorldSizesFailNamingBoth) {
  const std::string url = TcpUrl();
  const std::vector<Group> groups = InitAll({Options(url, 0, 2), Options(url, 1, 3)});
  bool named = false;
  for (const Group& group : groups) {
    ASSERT_FALSE(group.ok());
    named |= absl::StrContains(group.status().message(), "was given world size");
  }
  EXPECT_TRUE(named) << groups[0].status() << groups[1].status();
}

TEST(InitProcessGroup, AWorldThatNeverFillsNamesTheMissingRanks) {
  const std::string url = TcpUrl();
  InitOptions first = Options(url, 0, 4), second = Options(url, 2, 4);
  first.timeout = second.timeout = absl::Seconds(1);
  const absl::Time start = absl::Now();
  const std::vector<Group> groups = InitAll({first, second});
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
  EXPECT_EQ(groups[0].status(), absl::DeadlineExceededError("rank 0 of 4: these ranks have not joined: 1, 3"));
  // The other's store may go with rank 0.
  EXPECT_THAT(groups[1].status().message(), HasSubstr("rank 2 of 4: "));
}

TEST(InitProcessGroup, AMasterThatNeverAnswersIsNamed) {
  const int port = FreePort();
  InitOptions options = Options(absl::StrCat("tcp://127.0.0.1:", port), 1, 2);
  options.timeout = absl::Seconds(1);
  const Group group = InitProcessGroup(options);
  EXPECT_EQ(group.status().code(), absl::StatusCode::kDeadlineExceeded) << group.status();
  EXPECT_THAT(group.status().message(),
              HasSubstr(absl::StrCat("rank 1 of 2: connecting to the store at 127.0.0.1:", port)));
}

TEST(GlooGroup, ALostRankFailsTheOthersAndTheirGroupsEndAtOnce) {
  const std::string url = TcpUrl();
  std::vector<Group> groups = InitAll({Options(url, 0, 2), Options(url, 1, 2)});
  ASSERT_TRUE(groups[0].ok() && groups[1].ok());
  Work pending = (*groups[0])->AllReduceAsync(at::zeros({100}));
  (*groups[1]).reset();
  const absl::Status status = pending.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 0: all_reduce #0 of Float [100] on cpu: "));
  const absl::Time start = absl::Now();
  (*groups[0]).reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
}

TEST(GlooGroup, ATimedOutCollectiveDoesNotHoldTheDestructorUp) {
  const std::string url = TcpUrl();
  InitOptions first = Options(url, 0, 2), second = Options(url, 1, 2);
  first.timeout = second.timeout = absl::Seconds(1);
  std::vector<Group> groups = InitAll({first, second});
  ASSERT_TRUE(groups[0].ok() && groups[1].ok());
  const absl::Status status = (*groups[0])->Barrier();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 0: barrier #0: "));
  const absl::Time start = absl::Now();
  (*groups[0]).reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
}

// The following tests have a job secret.
class InitProcessGroupWithASecret : public ::testing::Test {
 protected:
  InitProcessGroupWithASecret() { setenv(kJobSecretVariable, "the secret of this job", 1); }
  ~InitProcessGroupWithASecret() override { unsetenv(kJobSecretVariable); }

  internal::C10dStore Stranger() const {
    return internal::ConnectTcpStore({"127.0.0.1", port_}, /*count_as_worker=*/false, absl::Seconds(20)).value();
  }

  const int port_ = FreePort();
  const std::string url_ = absl::StrCat("tcp://127.0.0.1:", port_);
};

TEST_F(InitProcessGroupWithASecret, NothingInTheStoreCanBeReadOrForged) {
  std::vector<Group> groups = InitAll({Options(url_, 0, 2), Options(url_, 1, 2)});
  ExpectTheySum(groups);
  const internal::C10dStore stranger = Stranger();
  // The meeting's, the watch's and Gloo's.
  for (const char* key : {"lockstep/member/1", "lockstep/group/watch/watch", "default_pg/0//cpu//0/1"}) {
    ASSERT_TRUE(stranger->check({key})) << key;
    EXPECT_TRUE(IsSealed(stranger->get_to_str(key))) << key;
  }
  groups[0].value()->store()->set("fact", "true");
  EXPECT_EQ(groups[1].value()->store()->get_to_str("fact"), "true");
  stranger->set("lockstep/group/fact", "forged");
  EXPECT_EQ(
      TorchStatus("", [&] { groups[1].value()->store()->get_to_str("fact"); }),
      absl::PermissionDeniedError("\"lockstep/group/fact\" was not written by a rank of this job: it is not sealed "
                                  "with a job secret"));
}

TEST_F(InitProcessGroupWithASecret, ARankIsNotTakenForPresentBecauseAStrangerSaysSo) {
  std::vector<Group> groups = InitAll({Options(url_, 0, 2), Options(url_, 1, 2)});
  Stranger()->set("lockstep/group/monitored_barrier/0/1", "");
  const absl::Status status = groups[0].value()->MonitoredBarrier(absl::Seconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 0: monitored_barrier #"));
  EXPECT_THAT(status.message(),
              HasSubstr("\"lockstep/group/monitored_barrier/0/1\" was not written by a rank of this job"));
}

TEST_F(InitProcessGroupWithASecret, ValuesOfAnEarlierRunWithTheSameSecretAreRefused) {
  std::vector<Group> earlier = InitAll({Options(url_, 0, 2), Options(url_, 1, 2)});
  earlier[0].value()->store()->set("fact", "true");
  const std::vector<uint8_t> recorded = Stranger()->get("lockstep/group/fact");
  earlier.clear();
  std::vector<Group> groups = InitAll({Options(url_, 0, 2), Options(url_, 1, 2)});
  Stranger()->set("lockstep/group/fact", recorded);
  EXPECT_EQ(TorchStatus("", [&] { groups[1].value()->store()->get_to_str("fact"); }).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(InitProcessGroupWithASecret, RanksOfUnequalSecretsFailAtOnce) {
  Group first;
  std::thread rank([&] { first = InitProcessGroup(Options(url_, 0, 2)); });
  while (!Stranger()->check({"lockstep/member/0"})) absl::SleepFor(absl::Milliseconds(1));
  setenv(kJobSecretVariable, "the secret of another job", 1);
  const absl::Time start = absl::Now();
  const Group second = InitProcessGroup(Options(url_, 1, 2));
  rank.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
  EXPECT_THAT(first.status().message(), HasSubstr("this rank has another job secret than rank 1"));
  EXPECT_THAT(second.status().message(), HasSubstr("this rank has another job secret than rank 0"));
}

TEST_F(InitProcessGroupWithASecret, ASecretThatIsTooShortIsRefused) {
  setenv(kJobSecretVariable, "short", 1);
  EXPECT_THAT(InitProcessGroup(Options(url_, 0, 1)).status().message(),
              HasSubstr("rank 0 of 1: environment variable LOCKSTEP_JOB_SECRET: a job secret of 5 bytes"));
}

}  // namespace
}  // namespace lockstep::comm
