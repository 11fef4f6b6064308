// Whoever else finds the watch's socket while the group is made: port scans, garbage, and the half-open.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/watch/internal/endpoint.h"
#include "lockstep/comm/watch/internal/frame.h"
#include "lockstep/comm/watch/internal/handshake.h"
#include "lockstep/comm/watch/testing/watches.h"
#include "lockstep/comm/watch/watch.h"

namespace lockstep::comm {
namespace {

using internal::Endpoint;
using internal::Frame;
using testing::MapStore;
using testing::OptionsOver;
using testing::ThreadRanks;

// The next frame of connection `fd`; one of an empty text if none comes.
Frame Receive(int fd, absl::Duration patience = absl::Seconds(15)) {
  internal::FrameReader reader;
  pollfd waited = {fd, POLLIN, 0};
  char byte;
  while (poll(&waited, 1, absl::ToInt64Milliseconds(patience)) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) == 1) {
    reader.Append(&byte, 1);
    const auto frame = reader.Next();
    if (!frame.ok()) break;
    if (frame->has_value()) return **frame;
  }
  return Frame();
}

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
    fds_.push_back(internal::Connect("rank 0", endpoint_, absl::Now() + absl::Seconds(20)).value());
    return fds_.back().get();
  }

  void Send(int fd, const std::string& bytes) { send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  // Returns whether the hub ends the connection; it may have to be waited for. Frames that it sent before are dropped.
  bool IsDropped(int fd, absl::Duration patience = absl::Seconds(15)) {
    pollfd waited = {fd, POLLIN, 0};
    char bytes[1000];
    while (poll(&waited, 1, absl::ToInt64Milliseconds(patience)) == 1) {
      if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) return true;
    }
    return false;
  }

  // A hello that answers the challenge of connection `fd`.
  Frame Hello(int fd, int rank, const std::string& token) {
    return {Frame::Type::kHello,
            rank,
            0,
            -1,
            0,
            internal::HelloText(token, Receive(fd).text, internal::RandomToken(), rank)};
  }

  MapStore store_;
  Endpoint endpoint_;

 private:
  std::vector<std::thread> threads_;
  std::vector<UniqueFd> fds_;
};
INSTANTIATE_TEST_SUITE_P(OneHostAndSeveral, Strangers, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "OneHost" : "SeveralHosts"; });

TEST_P(Strangers, APortScanDisturbsNobody) {
  for (int i = 0; i < 50; ++i) internal::Connect("rank 0", endpoint_, absl::Now() + absl::Seconds(20)).value().Close();
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
  for (const auto& [rank, token] : std::vector<std::pair<int, std::string>>{{1, internal::RandomToken()},
                                                                            {1, ""},
                                                                            {0, endpoint_.token},
                                                                            {kSize, endpoint_.token},
                                                                            {-1, endpoint_.token}}) {
    const int fd = Connect();
    Send(fd, internal::Encode(Hello(fd, rank, token)));
    EXPECT_TRUE(IsDropped(fd));
  }
  for (const Frame& frame :
       {Frame{Frame::Type::kHello, 1, 0, -1, 0, ""}, Frame{Frame::Type::kHello, 1, 0, -1, 0, endpoint_.token},
        Frame{Frame::Type::kDecide, 1, 1, -1, 0, "gone"}}) {
    const int fd = Connect();
    Send(fd, internal::Encode(frame));
    EXPECT_TRUE(IsDropped(fd));
  }
}

TEST_P(Strangers, AHelloThatWasReadAlongIsDroppedOnAnotherConnectionAndForAnotherRank) {
  const int rank1 = Connect(), replayed = Connect(), renumbered = Connect();
  Frame hello = Hello(rank1, 1, endpoint_.token);
  Send(replayed, internal::Encode(hello));
  EXPECT_TRUE(IsDropped(replayed));
  hello = Hello(renumbered, 1, endpoint_.token);
  hello.rank = 2;
  Send(renumbered, internal::Encode(hello));
  EXPECT_TRUE(IsDropped(renumbered));
}

TEST_P(Strangers, TheSilentAreDroppedAfterAWhile) {
  const int silent = Connect(), slow = Connect();
  Send(slow, internal::Encode(Hello(slow, 1, endpoint_.token)).substr(0, 20));
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
  EXPECT_EQ(internal::Connect("rank 0", endpoint_, absl::Now() + absl::Seconds(20)).status().code(),
            absl::StatusCode::kUnavailable);
}

// A stranger who stands where rank 0 should: it was named in a store that strangers can write to.
class FalseHub : public ::testing::TestWithParam<bool> {
 protected:
  FalseHub() {
    endpoint_.token = internal::RandomToken();
    listener_ = (GetParam() ? internal::ListenOnThisHost(endpoint_) : internal::ListenOnNetwork("127.0.0.1", endpoint_))
                    .value();
    EXPECT_TRUE(store_.Set("watch", internal::EncodeEndpoint(endpoint_)).ok());
  }

  // Returns rank 1's status where the false hub sends `first`, then `second` once it has received `heard`.
  absl::Status Join(const Frame& first, const Frame& second, Frame* heard) {
    absl::Status status;
    std::thread rank([&] { status = Watch::Create(OptionsOver(&store_, 1, ThreadRanks(2, GetParam()))).status(); });
    pollfd waited = {listener_.get(), POLLIN, 0};
    poll(&waited, 1, 20000);
    const UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string bytes = internal::Encode(first);
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    *heard = Receive(fd.get(), absl::Seconds(1));
    const std::string more = internal::Encode(second);
    send(fd.get(), more.data(), more.size(), MSG_NOSIGNAL);
    rank.join();
    return status;
  }

  MapStore store_;
  Endpoint endpoint_;
  UniqueFd listener_;
};
INSTANTIATE_TEST_SUITE_P(OneHostAndSeveral, FalseHub, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "OneHost" : "SeveralHosts"; });

TEST_P(FalseHub, IsNotBelievedWithoutAProof) {
  const Frame welcome{Frame::Type::kWelcome}, challenge{Frame::Type::kChallenge, -1, 0, -1, 0, std::string(32, 'a')};
  const Frame proof{Frame::Type::kProof, -1, 0, -1, 0, std::string(64, 'b')};
  const Frame cause{Frame::Type::kCause, 0, 13, -1, 0, "the disk is on fire"};
  const std::vector<std::pair<Frame, Frame>> attempts = {{welcome, welcome},   {cause, cause},     {proof, welcome},
                                                         {challenge, welcome}, {challenge, proof}, {challenge, cause}};
  for (const auto& [first, second] : attempts) {
    const absl::Time start = absl::Now();
    Frame heard;
    const absl::Status status = Join(first, second, &heard);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "is not rank 0 (host ")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "it does not know the group's token")) << status;
    EXPECT_LT(absl::Now() - start, absl::Seconds(3));
    EXPECT_FALSE(absl::StrContains(heard.text, endpoint_.token)) << "the token was sent";
  }
}

}  // namespace
}  // namespace lockstep::comm
