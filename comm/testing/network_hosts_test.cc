#include "lockstep/comm/testing/network_hosts.h"

#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/rendezvous/meeting.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kPort = 29500;  // free in a namespace of the test's own

absl::StatusOr<Met> Meet(const std::string& address, int rank, int world_size) {
  RendezvousOptions options;
  options.init_method = absl::StrCat("tcp://", address, ":", kPort);
  options.rank = rank;
  options.world_size = world_size;
  options.timeout = absl::Seconds(20);
  const auto rendezvous = OpenStore(options);
  if (!rendezvous.ok()) return rendezvous.status();
  const auto met =
      MeetAllRanks(rendezvous->store, rank, world_size, absl::StrCat("fact ", rank), absl::Now() + absl::Seconds(20));
  if (rank == 0 && rendezvous->server) absl::SleepFor(absl::Milliseconds(300));  // for the others to read it
  return met;
}

TEST(NetworkHosts, RanksOfTwoHostsMeetAtTheAddressOfTheFirst) {
  const auto hosts = NetworkHosts::Create(2);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  absl::StatusOr<Met> met[4];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back(
        [&, rank] { (*hosts)->Run(rank / 2, [&] { met[rank] = Meet((*hosts)->Address(0), rank, 4); }); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(met[rank].ok()) << met[rank].status();
    EXPECT_TRUE(met[rank]->all_lockstep);
    EXPECT_EQ(met[rank]->facts[3], "fact 3");
  }
}

TEST(NetworkHosts, AHostReachesTheOthersAndNothingElse) {
  const auto hosts = NetworkHosts::Create(3);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ((*hosts)->Address(2), "10.213.2.2");
  absl::StatusOr<UniqueFd> listener;
  (*hosts)->Run(2, [&] { listener = internal::BindListenSocket((*hosts)->Address(2), kPort); });
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto connects = [&](int from, const std::string& address) {
    const std::string command =
        absl::StrCat("timeout 5 bash -c 'exec 3<>/dev/tcp/", address, "/", kPort, "' 2>/dev/null");
    bool connected = false;
    (*hosts)->Run(from, [&] { connected = system(command.c_str()) == 0; });
    return connected;
  };
  EXPECT_TRUE(connects(0, "10.213.2.2"));
  EXPECT_TRUE(connects(2, "10.213.2.2"));
  EXPECT_FALSE(connects(0, "10.213.1.2"));
  EXPECT_FALSE(connects(0, "192.0.2.1"));
}

TEST(NetworkHosts, AStoreListensForTheHostsThatItsAddressNames) {
  const auto hosts = NetworkHosts::Create(2);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  for (const bool loopback : {true, false}) {
    RendezvousOptions options;
    options.init_method = absl::StrCat("tcp://", loopback ? "127.0.0.1" : (*hosts)->Address(0), ":", kPort);
    options.timeout = absl::Seconds(20);
    absl::StatusOr<Rendezvous> master;
    (*hosts)->Run(0, [&] { master = OpenStore(options); });
    ASSERT_TRUE(master.ok()) << master.status();
    options.init_method = absl::StrCat("tcp://", (*hosts)->Address(0), ":", kPort);
    options.rank = 1;
    options.timeout = loopback ? absl::Seconds(1) : absl::Seconds(20);
    absl::Status other;
    (*hosts)->Run(1, [&] { other = OpenStore(options).status(); });
    EXPECT_EQ(other.ok(), !loopback) << other;
  }
}

TEST(NetworkHosts, AreGoneWithTheObject) {
  const auto link_exists = [] { return system("ip -o link | grep -q host0@") == 0; };
  {
    const auto hosts = NetworkHosts::Create(1);
    ASSERT_TRUE(hosts.ok()) << hosts.status();
  }
  EXPECT_FALSE(link_exists());
  const auto again = NetworkHosts::Create(1);
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(NetworkHosts, ACutHostIsNamedAsMissing) {
  const auto hosts = NetworkHosts::Create(2);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ((*hosts)->Cut(0), absl::OkStatus());
  RendezvousOptions options;
  options.init_method = absl::StrCat("tcp://", (*hosts)->Address(0), ":", kPort);
  options.rank = 1;
  options.world_size = 2;
  options.timeout = absl::Seconds(1);
  absl::Status status;
  (*hosts)->Run(1, [&] { status = OpenStore(options).status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("connecting to the store at 10.213.0.2:29500: nobody has answered after 1s"));
}

}  // namespace
}  // namespace lockstep::comm::testing
