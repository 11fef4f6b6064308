// Whoever else finds the watch's socket while the group is made: port scans, garbage, and the half-open.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/watch/internal/endpoint.h"
#include "lockstep/comm/watch/internal/frame.h"
#include "lockstep/comm/watch/testing/watches.h"
#include "lockstep/comm/watch/watch.h"

namespace lockstep::comm {
namespace {

using internal::Endpoint;
using internal::Frame;
using testing::MapStore;
using testing::OptionsOver;
using testing::ThreadRanks;

// A group whose rank 0 is there and whose other ranks are still to come.
class Strangers : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kSize = 3;

  void SetUp() override {
    threads_.emplace_back([this] { Join(0); });
    endpoint_ = internal::DecodeEndpoint(store_.Get("watch", absl::Now() + absl::Seconds(20)).value()).value();
  }

  void TearDown() override {
    if (!threads_.empty()) Complete();
    for (const int fd : fds_) close(fd);
  }

  // The other ranks come; all must be through soon.
  void Complete() {
    const absl::Time start = absl::Now();
    for (int rank = 1; rank < kSize; ++rank) threads_.emplace_back([this, rank] { Join(rank); });
    for (std::thread& thread : threads_) thread.join();
    EXPECT_LT(absl::Now() - start, absl::Seconds(4)) << "strangers held the ranks up";
    threads_.clear();
  }

  // Joins, agrees on something, and leaves.
  void Join(int rank) {
    const auto watch = Watch::Create(OptionsOver(&store_, rank, ThreadRanks(kSize, GetParam())));
    ASSERT_TRUE(watch.ok()) << watch.status();
    EXPECT_EQ((*watch)->Agree(0, "x", absl::Now() + absl::Seconds(20)), absl::OkStatus());
  }

  int Connect() {
    const int fd = internal::Connect(endpoint_, absl::Now() + absl::Seconds(20)).value();
    fds_.push_back(fd);
    return fd;
  }

  void Send(int fd, const std::string& bytes) { send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  // Whether the hub ends the connection; it may have to be waited for.
  bool IsDropped(int fd, absl::Duration patience = absl::Seconds(15)) {
    pollfd waited = {fd, POLLIN, 0};
    char byte;
    return poll(&waited, 1, absl::ToInt64Milliseconds(patience)) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
  }

  MapStore store_;
  Endpoint endpoint_;

 private:
  std::vector<std::thread> threads_;
  std::vector<int> fds_;
};
INSTANTIATE_TEST_SUITE_P(OneHostAndSeveral, Strangers, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "OneHost" : "SeveralHosts"; });

TEST_P(Strangers, APortScanDisturbsNobody) {
  for (int i = 0; i < 50; ++i) close(internal::Connect(endpoint_, absl::Now() + absl::Seconds(20)).value());
}

TEST_P(Strangers, GarbageIsDroppedAtOnce) {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(5 + random() % 3000, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[3] = 'x';  // a length that no frame has
    const int fd = Connect();
    Send(fd, bytes);
    EXPECT_TRUE(IsDropped(fd));
  }
}

TEST_P(Strangers, AWrongTokenRankOrFirstFrameIsDropped) {
  Frame hello{Frame::Type::kHello, 1, 0, -1, 0, internal::RandomToken()};
  for (const Frame& frame :
       {hello, Frame{Frame::Type::kHello, 1, 0, -1, 0, ""}, Frame{Frame::Type::kHello, 0, 0, -1, 0, endpoint_.token},
        Frame{Frame::Type::kHello, kSize, 0, -1, 0, endpoint_.token},
        Frame{Frame::Type::kHello, -1, 0, -1, 0, endpoint_.token}, Frame{Frame::Type::kDecide, 1, 1, -1, 0, "gone"}}) {
    const int fd = Connect();
    Send(fd, internal::Encode(frame));
    EXPECT_TRUE(IsDropped(fd));
  }
}

TEST_P(Strangers, TheSilentAreDroppedAfterAWhile) {
  const int silent = Connect(), slow = Connect();
  Send(slow, internal::Encode({Frame::Type::kHello, 1, 0, -1, 0, endpoint_.token}).substr(0, 20));
  EXPECT_FALSE(IsDropped(silent, absl::Milliseconds(100)));
  EXPECT_TRUE(IsDropped(silent));
  EXPECT_TRUE(IsDropped(slow));
}

TEST_P(Strangers, AFloodDropsTheOldestFirst) {
  const int oldest = Connect();
  for (int i = 0; i < 300; ++i) Connect();
  EXPECT_TRUE(IsDropped(oldest, absl::Seconds(4)));
}

TEST_P(Strangers, NobodyListensOnceTheGroupIsComplete) {
  const int silent = Connect();
  Complete();
  EXPECT_TRUE(IsDropped(silent));
  EXPECT_EQ(internal::Connect(endpoint_, absl::Now() + absl::Seconds(20)).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace lockstep::comm
