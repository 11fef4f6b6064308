// Two of three hosts do not reach each other, and the third one reaches both: threads in network namespaces.

#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/hierarchical/internal/links.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"

namespace lockstep::comm::hierarchical::internal {
namespace {

constexpr int kRanks = 3;
constexpr std::chrono::milliseconds kTimeout(40000);
constexpr char kSilent[] = "its host does not answer this one; can the two reach each other?";

class SilentPair : public ::testing::Test {
 protected:
  void SetUp() override {
    auto hosts = comm::testing::NetworkHosts::Create(kRanks);
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    hosts_ = *std::move(hosts);
  }

  LinksOptions Options(int rank) {
    LinksOptions options;
    options.rank = rank;
    options.size = kRanks;
    options.names = {10, 11, 12};
    options.address = hosts_->Address(rank);
    options.publish = [this](const std::string& key, const std::string& value) {
      const std::lock_guard<std::mutex> lock(mutex_);
      board_[key] = value;
      changed_.notify_all();
      return absl::OkStatus();
    };
    options.read = [this](const std::string& key, absl::Time) -> absl::StatusOr<std::string> {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return board_.count(key) != 0; });
      return board_[key];
    };
    options.check = [this] { return failed_ ? absl::UnavailableError("another rank failed") : absl::OkStatus(); };
    options.deadline = absl::Now() + absl::FromChrono(kTimeout);
    return options;
  }

  // `body` on a thread of each host.
  void OnEachHost(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] { hosts_->Run(rank, [&] { body(rank); }); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<comm::testing::NetworkHosts> hosts_;
  std::atomic<bool> failed_{false};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> board_;
};

PieceHeader Header(uint64_t bytes) {
  PieceHeader header;
  header.bytes = bytes;
  return header;
}

// Ranks 11 and 12 have unsent bytes for each other. On the connections to rank 10, one side sends more than the system
// takes to a rank that is slow for longer than any host may be silent.
TEST_F(SilentPair, IsNamedOnBothSidesWithin30sAndASlowRankIsNot) {
  std::array<std::unique_ptr<Links>, kRanks> links;
  OnEachHost([&](int rank) {
    auto made = Links::Create(Options(rank));
    ASSERT_TRUE(made.ok()) << made.status();
    links[rank] = *std::move(made);
  });
  ASSERT_EQ(hosts_->CutPair(1, 2), absl::OkStatus());
  const size_t count = size_t{16} << 20;
  const absl::Time start = absl::Now();
  OnEachHost([&](int rank) {
    std::vector<char> mine(count), theirs(count);
    if (rank == 0) {
      absl::SleepFor(absl::Seconds(32));
      for (const int peer : {1, 2}) {
        EXPECT_EQ(links[0]->Receive(peer, 0, Header(count), theirs.data(), kTimeout), absl::OkStatus());
      }
      return;
    }
    const int peer = 3 - rank;
    std::thread slow(
        [&] { EXPECT_EQ(links[rank]->Send(0, 0, Header(count), mine.data(), kTimeout), absl::OkStatus()); });
    std::thread sender([&] {
      EXPECT_EQ(
          links[rank]->Send(peer, 0, Header(count), mine.data(), kTimeout),
          absl::UnavailableError(absl::StrCat("rank ", 10 + rank, ": sending to rank ", 10 + peer, ": ", kSilent)));
      EXPECT_LT(absl::Now() - start, absl::Seconds(30));
    });
    EXPECT_EQ(
        links[rank]->Receive(peer, 0, Header(count), theirs.data(), kTimeout),
        absl::UnavailableError(absl::StrCat("rank ", 10 + rank, ": receiving from rank ", 10 + peer, ": ", kSilent)));
    EXPECT_LT(absl::Now() - start, absl::Seconds(30));
    sender.join();
    slow.join();
  });
}

// Nothing is under way: the system asks.
TEST_F(SilentPair, IsNamedByARankThatOnlyReceives) {
  std::array<std::unique_ptr<Links>, kRanks> links;
  OnEachHost([&](int rank) { links[rank] = Links::Create(Options(rank)).value(); });
  ASSERT_EQ(hosts_->CutPair(1, 2), absl::OkStatus());
  const absl::Time start = absl::Now();
  OnEachHost([&](int rank) {
    if (rank != 2) return;
    char byte = 0;
    EXPECT_EQ(links[2]->Receive(1, 0, Header(1), &byte, kTimeout),
              absl::UnavailableError(absl::StrCat("rank 12: receiving from rank 11: ", kSilent)));
    EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  });
}

TEST_F(SilentPair, IsNamedWhenItsRanksConnect) {
  ASSERT_EQ(hosts_->CutPair(1, 2), absl::OkStatus());
  const absl::Time start = absl::Now();
  OnEachHost([&](int rank) {
    const absl::Status status = Links::Create(Options(rank)).status();
    if (rank != 2) return;
    failed_ = true;
    EXPECT_EQ(status, absl::UnavailableError(absl::StrCat("rank 12: connecting to rank 11: ", kSilent)));
    EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  });
}

// All ranks get the error of one of the two.
TEST_F(SilentPair, EndsAGroupOverGlooWithin30s) {
  std::atomic<int> ready{0};
  std::atomic<int64_t> cut_ns{0};
  OnEachHost([&](int rank) {
    InitOptions options;
    options.backend = "gloo";
    options.init_method = absl::StrCat("tcp://", hosts_->Address(0), ":29500");
    options.rank = rank;
    options.world_size = kRanks;
    options.timeout = absl::Seconds(60);
    options.debug = Debug::kOff;
    const auto group = InitProcessGroup(options);
    ASSERT_TRUE(group.ok()) << group.status();
    at::Tensor sum = at::zeros({1 << 20});
    EXPECT_EQ((*group)->AllReduce(sum), absl::OkStatus());
    if (++ready == kRanks) {
      ASSERT_EQ(hosts_->CutPair(1, 2), absl::OkStatus());
      cut_ns = absl::ToUnixNanos(absl::Now());
    }
    absl::Status status;
    while (status.ok()) status = (*group)->AllReduce(sum);
    EXPECT_LT(absl::Now() - absl::FromUnixNanos(cut_ns), absl::Seconds(30)) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::ContainsRegex("host 10.213.[12].2 does not answer this one; can the two reach each other"))
        << status;
  });
}

}  // namespace
}  // namespace lockstep::comm::hierarchical::internal
