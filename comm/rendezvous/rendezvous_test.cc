// Stores by TCP and by file: where they listen, who disturbs them, and how they fail.

#include "lockstep/comm/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/comm/rendezvous/meeting.h"
#include "lockstep/comm/rendezvous/waiting_notice.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

int FreePort() { return internal::BoundPort(internal::BindListenSocket("127.0.0.1", 0)->get()).value(); }

RendezvousOptions Tcp(int port, int rank, int world_size, absl::Duration timeout = absl::Seconds(20)) {
  RendezvousOptions options;
  options.init_method = absl::StrCat("tcp://127.0.0.1:", port);
  options.rank = rank;
  options.world_size = world_size;
  options.timeout = timeout;
  return options;
}

absl::StatusOr<Met> Meet(const Rendezvous& rendezvous, int rank, int world_size) {
  return MeetAllRanks(rendezvous.store, rank, world_size, "", absl::Now() + absl::Seconds(20));
}

// A connection to `host`; invalid if refused.
UniqueFd Connect(int port, const std::string& host = "127.0.0.1") {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = Resolve(host, port)->front();
  return connect(fd.get(), address.get(), address.size) == 0 ? std::move(fd) : UniqueFd();
}

// Closes with a reset, as a port scanner does.
void Reset(UniqueFd fd) {
  const linger at_once = {1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

// Does to an open port what strangers do. Returns the connections that they leave half open.
std::vector<UniqueFd> Disturb(int port) {
  std::vector<UniqueFd> left;
  const std::string garbage[] = {"",
                                 "\x03",
                                 "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                 std::string(100000, '\xff'),
                                 std::string(5000, '\0'),
                                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"};
  for (const std::string& bytes : garbage) {
    for (const bool stays : {false, true}) {
      UniqueFd fd = Connect(port);
      EXPECT_TRUE(fd.valid());
      send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (stays) {
        left.push_back(std::move(fd));
      } else {
        Reset(std::move(fd));
      }
    }
  }
  return left;
}

TEST(OpenStore, NamesTheLimitIfRank0HasTooFewDescriptorsForTheWorld) {
  constexpr int kWorld = 40, kForItself = 16;
  const int port = FreePort();
  const ::lockstep::testing::FewDescriptors few(kForItself + kWorld - 1);
  const absl::Status status = OpenStore(Tcp(port, 0, kWorld)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::MatchesRegex(absl::StrCat("serving the store at 127.0.0.1:", port,
                                                   ": opening 56 descriptors, of which [0-9]+ are free: Too many open "
                                                   "files \\(the soft limit of open files is [0-9]+ .RLIMIT_NOFILE.; "
                                                   "raise it with ulimit -n\\)")));
  EXPECT_EQ(OpenStore(Tcp(port, 0, kWorld / 2)).status(), absl::OkStatus());
}

TEST(OpenStore, GarbageHalfOpenConnectionsAndPortScansDoNotDisturbAFormingGroup) {
  const int port = FreePort();
  const auto first = OpenStore(Tcp(port, 0, 3));
  ASSERT_TRUE(first.ok()) << first.status();
  std::vector<std::vector<UniqueFd>> left(1);
  left[0] = Disturb(port);
  std::vector<absl::StatusOr<Met>> met(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto own = rank == 0 ? first : OpenStore(Tcp(port, rank, 3));
      met[rank] = own.ok() ? Meet(*own, rank, 3) : own.status();
    });
    left.push_back(Disturb(port));
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& rank : met) EXPECT_TRUE(rank.ok()) << rank.status();
}

TEST(OpenStore, OnLoopbackRefusesTheMachinesOtherAddresses) {
  const int port = FreePort();
  const auto rendezvous = OpenStore(Tcp(port, 0, 1));
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  EXPECT_TRUE(Connect(port).valid());
  EXPECT_FALSE(Connect(port, "127.0.0.2").valid());
}

TEST(OpenStore, APortInUseIsNamed) {
  const UniqueFd fd = internal::BindListenSocket("127.0.0.1", 0).value();
  const int port = internal::BoundPort(fd.get()).value();
  const absl::Status status = OpenStore(Tcp(port, 0, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            absl::StrCat("cannot listen on 127.0.0.1:", port,
                         ": Address already in use (by another program, another job, or a second rank 0 of this one)"));
}

TEST(OpenStore, AStoreWhereNobodyListensIsNamedByTheDeadline) {
  const int port = FreePort();
  const absl::Time start = absl::Now();
  const absl::Status status = OpenStore(Tcp(port, 1, 2, absl::Seconds(1))).status();
  EXPECT_GT(absl::Now() - start, absl::Milliseconds(950));  // the wait does not end early
  EXPECT_LT(absl::Now() - start, absl::Seconds(6));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("connecting to the store at 127.0.0.1:", port,
                                                       ": nobody has answered after 1s: ")));
}

TEST(OpenStore, ARankZeroThatCannotReachItsOwnStoreIsNamedInOneLine) {
  RendezvousOptions options = Tcp(0, 0, 2, absl::Seconds(1));
  options.init_method = "env://";
  options.environment.master_addr = "127.0.0.2";  // like another host's address
  options.environment.master_listen_fd = internal::BindListenSocket("127.0.0.1", 0)->Release();
  options.environment.master_port = internal::BoundPort(options.environment.master_listen_fd).value();
  ::testing::internal::CaptureStderr();
  const absl::Status status = OpenStore(options).status();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), absl::StrCat("connecting to the store at 127.0.0.2:", options.environment.master_port,
                                           ": nobody has answered after 1s: Connection refused"));
}

TEST(OpenStore, AListenerThatNeverSpeaksIsNamedByTheDeadline) {
  const UniqueFd fd = internal::BindListenSocket("127.0.0.1", 0).value();
  const int port = internal::BoundPort(fd.get()).value();
  const absl::Time start = absl::Now();
  const absl::Status status = OpenStore(Tcp(port, 1, 2, absl::Seconds(1))).status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(6));
  EXPECT_EQ(status, absl::DeadlineExceededError(absl::StrCat("connecting to the store at 127.0.0.1:", port,
                                                             ": nobody has answered after 1s: no answer")));
}

// Nobody answers at `port`: rank 1 says so, rank 2 does not.
void ExpectANotice(int port, int rank, const std::string& why) {
  std::vector<std::string> lines;
  RendezvousOptions options = Tcp(port, rank, 3, absl::Seconds(1));
  options.waiting = std::make_shared<WaitingNotice>(WaitingNoticeOptions{
      "rank 1", options.timeout, absl::Milliseconds(200), [&](const std::string& line) { lines.push_back(line); }});
  EXPECT_FALSE(OpenStore(options).ok());
  ASSERT_EQ(lines.empty(), rank == 2);
  if (rank == 2) return;
  EXPECT_THAT(lines[0], ::testing::MatchesRegex(absl::StrCat(
                            "rank 1: waiting for the store at 127.0.0.1:", port, " \\([0-9]+ms of 1 s\\): ", why,
                            "; has rank 0 started there, and does a firewall let this host reach the port\\?")));
}

TEST(OpenStore, OneRankSaysThatItWaitsForTheStoreAndWhy) {
  const UniqueFd silent = internal::BindListenSocket("127.0.0.1", 0).value();  // accepts, and never speaks
  const int silent_port = internal::BoundPort(silent.get()).value(), free_port = FreePort();
  std::vector<std::thread> waiting;  // at the same time
  for (const int rank : {1, 2}) {
    waiting.emplace_back([=] { ExpectANotice(free_port, rank, "Connection refused"); });
    waiting.emplace_back([=] { ExpectANotice(silent_port, rank, "no answer"); });
  }
  for (std::thread& thread : waiting) thread.join();
}

TEST(OpenStore, AnUnknownHostIsNamed) {
  for (const int rank : {0, 1}) {
    RendezvousOptions options = Tcp(1, rank, 2, absl::Seconds(1));
    options.init_method = "tcp://no-such-host.invalid:29500";
    const absl::Status status = OpenStore(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(status.message(), HasSubstr("host \"no-such-host.invalid\" is unknown: "));
  }
}

TEST(OpenStore, AFolderThatDoesNotExistIsNamed) {
  RendezvousOptions options = Tcp(1, 0, 2);
  options.init_method = "file:///no/such/folder/store";
  EXPECT_EQ(OpenStore(options).status(),
            absl::NotFoundError("file store /no/such/folder/store: folder /no/such/folder/ does not exist"));
  options.init_method = "file://" + ::testing::TempDir();
  EXPECT_THAT(OpenStore(options).status().message(), HasSubstr(": this is a folder"));
}

TEST(OpenStore, SaysWhichLauncherLeftTheMasterOpen) {
  RendezvousOptions options = Tcp(1, 0, 2);
  options.init_method = "env://";
  EXPECT_EQ(OpenStore(options).status().message(),
            "init_method env:// needs environment variable MASTER_ADDR, which is not set");
  options.environment.launcher = "mpirun";
  options.environment.master_addr = "a";
  EXPECT_EQ(OpenStore(options).status().message(),
            "init_method env:// needs environment variable MASTER_PORT, which is not set by mpirun");
}

// Under torchrun every rank is a client of the agent's store, which a restart finds as the last attempt left it.
TEST(OpenStore, UnderAnAgentsStoreEachAttemptMeetsAnew) {
  const int port = FreePort();
  const auto agent = OpenStore(Tcp(port, 0, 1));
  ASSERT_TRUE(agent.ok()) << agent.status();
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([=] {
        RendezvousOptions options = Tcp(port, rank, 2);
        options.init_method = "env://";
        options.environment.master_addr = "127.0.0.1";
        options.environment.master_port = port;
        options.environment.use_agent_store = true;
        options.environment.restart_count = attempt;
        const auto own = OpenStore(options);
        ASSERT_TRUE(own.ok()) << own.status();
        EXPECT_EQ(own->server, nullptr);
        EXPECT_EQ(Meet(*own, rank, 2).status(), absl::OkStatus());
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(OpenStore, AMasterThatGoesWhileTheGroupFormsIsNamed) {
  const int port = FreePort();
  auto master = std::make_unique<absl::StatusOr<Rendezvous>>(OpenStore(Tcp(port, 0, 3)));
  ASSERT_TRUE(master->ok()) << master->status();
  const auto other = OpenStore(Tcp(port, 1, 3));
  ASSERT_TRUE(other.ok()) << other.status();
  absl::Status status;
  std::thread rank([&] { status = Meet(*other, 1, 3).status(); });
  while (!(*master)->store->check({"lockstep/member/1"})) absl::SleepFor(absl::Milliseconds(1));
  const absl::Time start = absl::Now();
  master.reset();
  rank.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(),
              HasSubstr(absl::StrCat("the store at 127.0.0.1:", port, " went away while the ranks met: ")));
}

}  // namespace
}  // namespace lockstep::comm
