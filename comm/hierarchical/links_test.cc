// Ranks as threads that meet in a map.

#include "lockstep/comm/hierarchical/internal/links.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::hierarchical::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong(20000);

class Board {
 public:
  void Write(const std::string& key, const std::string& value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string Read(const std::string& key) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return values_.count(key) != 0; });
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

LinksOptions Options(Board& board, int rank, int size, int lanes) {
  LinksOptions options;
  options.rank = rank;
  options.size = size;
  for (int r = 0; r < size; ++r) options.names.push_back(10 + r);
  options.lanes = lanes;
  options.address = "127.0.0.1";
  options.publish = [&board](const std::string& key, const std::string& value) {
    board.Write(key, value);
    return absl::OkStatus();
  };
  options.read = [&board](const std::string& key, absl::Time) { return board.Read(key); };
  options.check = [] { return absl::OkStatus(); };
  options.deadline = absl::Now() + absl::Seconds(20);
  return options;
}

void RunLinked(int size, int lanes, const std::function<void(Links&)>& body) {
  Board board;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto links = Links::Create(Options(board, rank, size, lanes));
      ASSERT_TRUE(links.ok()) << links.status();
      body(**links);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

PieceHeader Header(uint64_t bytes) {
  PieceHeader header;
  header.call = 7;
  header.bytes = bytes;
  return header;
}

TEST(Links, CarryEachLanesBytesInOrder) {
  RunLinked(3, 2, [](Links& links) {
    const size_t count = 300000;  // more than the system buffers
    std::vector<int32_t> mine(count), theirs(count);
    for (int lane = 0; lane < 2; ++lane) {
      std::thread sender([&] {
        std::iota(mine.begin(), mine.end(), links.rank() * 1000 + lane);
        for (int d = 1; d < 3; ++d) {
          EXPECT_EQ(links.Send((links.rank() + d) % 3, lane, Header(count * 4), mine.data(), kLong), absl::OkStatus());
        }
      });
      for (int d = 1; d < 3; ++d) {
        const int peer = (links.rank() + 3 - d) % 3;
        EXPECT_EQ(links.Receive(peer, lane, Header(count * 4), theirs.data(), kLong), absl::OkStatus());
        EXPECT_EQ(theirs.front(), peer * 1000 + lane);
        EXPECT_EQ(theirs.back(), peer * 1000 + lane + static_cast<int>(count) - 1);
      }
      sender.join();
    }
  });
}

TEST(Links, ARankThatSendsAnotherPieceIsAnError) {
  RunLinked(2, 1, [](Links& links) {
    char bytes[8] = {};
    if (links.rank() == 1) {
      EXPECT_EQ(links.Send(0, 0, Header(4), bytes, kLong), absl::OkStatus());
      EXPECT_FALSE(links.Receive(0, 0, Header(1), bytes, kLong).ok());  // until rank 0 has read it
    } else {
      EXPECT_EQ(links.Receive(1, 0, Header(8), bytes, kLong),
                absl::InvalidArgumentError("rank 10: rank 11 sent piece 0 of all_reduce #7 (4 bytes; bytes [0], sum); "
                                           "expected piece 0 of all_reduce #7 (8 bytes; bytes [0], sum)"));
    }
  });
}

TEST(Links, APeerThatLeavesEndsAReceive) {
  RunLinked(2, 1, [](Links& links) {
    char byte = 0;
    if (links.rank() == 1) return;
    const absl::Status status = links.Receive(1, 0, Header(1), &byte, kLong);
    EXPECT_EQ(status, absl::UnavailableError("rank 10: receiving from rank 11: the connection was closed"));
  });
}

TEST(Links, DeadlineAndAbortEndAReceiveAndASend) {
  RunLinked(2, 1, [](Links& links) {
    std::vector<char> much(32 << 20);
    char byte = 0;
    if (links.rank() == 1) {
      EXPECT_FALSE(links.Receive(0, 0, Header(1), &byte, milliseconds(2000)).ok());  // stays, and reads nothing
      return;
    }
    absl::Status status = links.Receive(1, 0, Header(1), &byte, milliseconds(50));
    EXPECT_EQ(status, absl::DeadlineExceededError("rank 10: receiving from rank 11 timed out"));
    std::thread aborter([&] {
      absl::SleepFor(absl::Milliseconds(100));
      links.Abort();
    });
    const absl::Time begin = absl::Now();
    status = links.Receive(1, 0, Header(1), &byte, kLong);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
    EXPECT_EQ(links.Send(1, 0, Header(much.size()), much.data(), kLong).code(), absl::StatusCode::kAborted);
    aborter.join();
  });
}

TEST(Links, AStrangerIsSentAway) {
  Board board;
  const auto meet = [&board](int rank) { return Links::Create(Options(board, rank, 2, 1)); };
  absl::StatusOr<std::unique_ptr<Links>> links;
  std::thread listener([&] { links = meet(0); });
  const std::vector<std::string> fields = absl::StrSplit(board.Read("0"), ' ');
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(fields.at(1), &port));
  const SocketAddress address = Resolve("127.0.0.1", port)->front();
  const UniqueFd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(stranger.get(), address.get(), address.size), 0);
  const std::string hello(40, 'x');
  EXPECT_EQ(send(stranger.get(), hello.data(), hello.size(), MSG_NOSIGNAL), 40);
  char byte = 0;
  EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);
  const auto other = meet(1);
  listener.join();
  EXPECT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(links.ok()) << links.status();
}

TEST(Links, ARankThatDoesNotConnectIsNamed) {
  Board board;
  LinksOptions options = Options(board, 0, 3, 2);
  options.deadline = absl::Now() + absl::Milliseconds(100);
  const auto links = Links::Create(options);
  EXPECT_EQ(links.status(),
            absl::DeadlineExceededError("rank 10: timed out waiting for the connections of rank 11, 12"));
}

}  // namespace
}  // namespace lockstep::comm::hierarchical::internal
