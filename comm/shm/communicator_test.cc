#include "lockstep/comm/shm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/comm/shm/testing/local_ranks.h"

namespace lockstep::comm::shm {
namespace {

using ::lockstep::testing::FewDescriptors;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::RunLocalRanks;
using testing::RunLocalRanksOk;

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

Request AllReduceOf(std::vector<float>& data, Op op = Op::kSum) {
  Request request;
  request.kind = Kind::kAllReduce;
  request.dtype = DType::kFloat32;
  request.op = op;
  request.buffers = {{reinterpret_cast<char*>(data.data()), data.size() * sizeof(float)}};
  return request;
}

absl::Status AllReduce(Communicator& ranks, std::vector<float>& data) {
  return ranks.Wait(*ranks.Start(AllReduceOf(data)), Soon());
}

TEST(Communicator, AllReduceGivesEveryRankTheSameBits) {
  // Sums whose rounding depends on the order, over every way there is: whole, in parts, in place, and one rank in
  // place.
  for (const size_t count : {size_t{1000}, size_t{200001}}) {
    for (const int shared : {0, 1, 3}) {
      std::vector<std::vector<float>> results(3);
      ASSERT_EQ(RunLocalRanksOk(3,
                                [&](Communicator& ranks) {
                                  std::vector<float> data(count);
                                  for (size_t i = 0; i < count; ++i)
                                    data[i] = 1.0F / static_cast<float>(i + 3 * ranks.rank() + 1);
                                  std::shared_ptr<char> memory;
                                  Request request = AllReduceOf(data);
                                  if (ranks.rank() < shared) {
                                    memory = ranks.Allocate(count * sizeof(float));
                                    std::copy_n(request.buffers[0].data, count * sizeof(float), memory.get());
                                    request.buffers[0].data = memory.get();
                                  }
                                  const absl::Status status = ranks.Wait(*ranks.Start(request), Soon());
                                  const auto* const sum = reinterpret_cast<float*>(request.buffers[0].data);
                                  results[ranks.rank()].assign(sum, sum + count);
                                  return status;
                                }),
                absl::OkStatus());
      for (size_t i = 0; i < count; ++i) {
        float sum = 1.0F / static_cast<float>(i + 1);
        for (int r = 1; r < 3; ++r) sum += 1.0F / static_cast<float>(i + 3 * r + 1);
        ASSERT_EQ(results[0][i], sum) << i;
      }
      EXPECT_EQ(results[0], results[1]);
      EXPECT_EQ(results[0], results[2]);
    }
  }
}

TEST(Communicator, CallsMoveOnWhileLaterOnesAreWaitedFor) {
  EXPECT_EQ(RunLocalRanksOk(2,
                            [](Communicator& ranks) {
                              std::vector<std::vector<float>> data(5, std::vector<float>(50000, 1.0F));
                              std::vector<std::shared_ptr<Operation>> calls;
                              for (auto& one : data) calls.push_back(ranks.Start(AllReduceOf(one)));
                              LOCKSTEP_RETURN_IF_ERROR(ranks.Wait(*calls.back(), Soon()));
                              for (const auto& call : calls) {
                                if (!call->done()) return absl::InternalError("an earlier call is not done");
                              }
                              return absl::OkStatus();
                            }),
            absl::OkStatus());
}

TEST(Communicator, DestroyedMemoryOutlivesTheCommunicator) {
  std::shared_ptr<char> memory;
  EXPECT_EQ(RunLocalRanksOk(1,
                            [&](Communicator& ranks) {
                              memory = ranks.Allocate(100);
                              return absl::OkStatus();
                            }),
            absl::OkStatus());
  memory.get()[99] = 'x';
  EXPECT_EQ(memory.get()[99], 'x');
}

TEST(Communicator, AllocateReturnsNullWhenThereIsNoRoom) {
  EXPECT_EQ(RunLocalRanksOk(1,
                            [&](Communicator& ranks) {
                              EXPECT_EQ(ranks.Allocate(size_t{1} << 40), nullptr);
                              return absl::OkStatus();
                            }),
            absl::OkStatus());
}

TEST(Communicator, RanksThatDisagreeAllLearnWhoCalledWhat) {
  const std::vector<absl::Status> results = RunLocalRanks(3, [](Communicator& ranks) {
    std::vector<float> data(ranks.rank() == 2 ? 11 : 10, 5.0F);
    const absl::Status status = AllReduce(ranks, data);
    EXPECT_EQ(data, std::vector<float>(data.size(), 5.0F)) << "nothing was written";
    return status;
  });
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "the ranks disagree: rank 0 called all_reduce #0 (sum) of 40 bytes of float32; rank 2 called all_reduce "
              "#0 (sum) of 44 bytes of float32");
  }
}

TEST(Communicator, RanksThatDisagreeOnTheOperationAllLearnIt) {
  const std::vector<absl::Status> results = RunLocalRanks(2, [](Communicator& ranks) {
    std::vector<float> data(10);
    Request request = AllReduceOf(data);
    if (ranks.rank() == 1) request.kind = Kind::kBroadcast;
    return ranks.Wait(*ranks.Start(request), Soon());
  });
  for (const absl::Status& status : results) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 0 called all_reduce #0"), HasSubstr("rank 1 called broadcast #0 of 40 bytes")));
  }
}

TEST(Communicator, SplitsThatDoNotFitAreNamedOnBothSides) {
  const std::vector<absl::Status> results = RunLocalRanks(2, [](Communicator& ranks) {
    std::vector<char> data(100);
    Request request;
    request.kind = Kind::kAllToAll;
    // Rank 0 sends 8 bytes to rank 1, which expects 9.
    request.buffers = {{data.data(), 4}, {data.data() + 10, 8}};
    request.results = {{data.data() + 30, static_cast<size_t>(ranks.rank() == 1 ? 9 : 4)}, {data.data() + 60, 4}};
    if (ranks.rank() == 1) request.results[1].bytes = 8;
    return ranks.Wait(*ranks.Start(request), Soon());
  });
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.message(), "all_to_all #0: rank 0 sends 8 bytes to rank 1, which expects 9");
  }
}

// Rank 0 has leaves 0 to 2 of a tree over 4, as the sums (0 + 1) and 2; rank 1 has leaf 3.
Request TreeSumOf(Communicator& ranks, const std::shared_ptr<char>& memory, size_t floats) {
  Request request;
  request.kind = Kind::kTreeSum;
  request.dtype = DType::kFloat32;
  const size_t bytes = floats * sizeof(float);
  request.buffers = {{memory.get(), bytes}};
  if (ranks.rank() == 0) request.buffers.push_back({memory.get() + bytes, bytes});
  request.results = {request.buffers.back()};
  request.owner = memory;
  TreeSumOrder tree;
  tree.counts = {2, 1};
  tree.adds = {0, 0, 2};
  tree.divisor = 4;
  request.tree = std::make_shared<const TreeSumOrder>(tree);
  return request;
}

TEST(Communicator, ATreeSumAddsThePartialSumsOfTheRanks) {
  for (const size_t floats : {size_t{0}, size_t{1}, size_t{1000}, size_t{100003}}) {
    const size_t padded = (floats + 15) / 16 * 16;
    EXPECT_EQ(RunLocalRanksOk(2,
                              [&](Communicator& ranks) {
                                const std::shared_ptr<char> memory = ranks.Allocate(2 * padded * sizeof(float) + 64);
                                auto* const numbers = reinterpret_cast<float*>(memory.get());
                                // Rank 0: 1e8 and -1e8; rank 1: 1. The tree is 1e8 + (-1e8 + 1), which is 0.
                                for (size_t i = 0; i < floats; ++i) {
                                  numbers[i] = ranks.rank() == 0 ? 1e8F : 4;
                                  numbers[floats + i] = -1e8F;
                                }
                                Request request = TreeSumOf(ranks, memory, floats);
                                const auto* const sum = reinterpret_cast<const float*>(request.results[0].data);
                                LOCKSTEP_RETURN_IF_ERROR(ranks.Wait(*ranks.Start(std::move(request)), Soon()));
                                const float expected = (1e8F + (-1e8F + 4.0F)) / 4;
                                for (size_t i = 0; i < floats; ++i) EXPECT_EQ(sum[i], expected) << i;
                                return absl::OkStatus();
                              }),
              absl::OkStatus());
  }
}

TEST(Communicator, ATreeSumThatDoesNotFitIsNamed) {
  const auto run = [](const std::function<void(Communicator&, Request&)>& spoil) {
    return RunLocalRanks(2, [&](Communicator& ranks) {
      Request request = TreeSumOf(ranks, ranks.Allocate(800), 100);
      spoil(ranks, request);
      return ranks.Wait(*ranks.Start(std::move(request)), Soon());
    });
  };
  for (const absl::Status& status : run([](Communicator&ranks, Request&request) {
         if (ranks.rank() == 0) request.buffers.pop_back();
       })) {
    EXPECT_EQ(status.message(), "tree_sum #0: rank 0 has 1 partial sums, expected 2");
  }
  std::vector<float> elsewhere(100);
  for (const absl::Status& status : run([&](Communicator&ranks, Request&request) {
         if (ranks.rank() == 1) request.results[0].data = reinterpret_cast<char*>(elsewhere.data());
       })) {
    EXPECT_EQ(status.message(), "tree_sum #0: a tensor of rank 1 is not in the memory that the ranks share");
  }
  for (const absl::Status& status : run([](Communicator&ranks, Request&request) {
         auto tree = *request.tree;
         tree.divisor = 3 + ranks.rank();
         request.tree = std::make_shared<const TreeSumOrder>(tree);
       })) {
    EXPECT_EQ(status.message(),
              "the ranks disagree: rank 0 called tree_sum #0 of 400 bytes of float32, divided by 3; rank 1 called "
              "tree_sum #0 of 400 bytes of float32, divided by 4");
  }
}

TEST(Communicator, AMessageOfAnotherSizeIsNamed) {
  const std::vector<absl::Status> results = RunLocalRanks(2, [](Communicator& ranks) {
    std::vector<char> data(100);
    const auto call = ranks.rank() == 0 ? ranks.Send(1, 7, {data.data(), 60}, nullptr)
                                        : ranks.Receive(0, 7, {data.data(), 50}, nullptr);
    return ranks.Wait(*call, Soon());
  });
  EXPECT_EQ(results[1].message(), "recv #0 from rank 0, tag 7, 50 bytes: rank 0 sent 60 bytes, expected 50");
}

TEST(Communicator, MessagesCrossAndAreTakenByTag) {
  constexpr size_t kBytes = size_t{3} << 20;  // many times what a mailbox holds
  EXPECT_EQ(RunLocalRanksOk(2,
                            [](Communicator& ranks) {
                              const int other = 1 - ranks.rank();
                              std::vector<char> a(kBytes, 'a'), b(10, 'b'), got_a(kBytes), got_b(10);
                              const auto send_a = ranks.Send(other, 1, {a.data(), a.size()}, nullptr);
                              const auto send_b = ranks.Send(other, 2, {b.data(), b.size()}, nullptr);
                              const auto take_b = ranks.Receive(-1, 2, {got_b.data(), got_b.size()}, nullptr);
                              LOCKSTEP_RETURN_IF_ERROR(ranks.Wait(*take_b, Soon()));
                              EXPECT_EQ(take_b->source(), other);
                              const auto take_a = ranks.Receive(other, 1, {got_a.data(), got_a.size()}, nullptr);
                              LOCKSTEP_RETURN_IF_ERROR(ranks.Wait(*take_a, Soon()));
                              LOCKSTEP_RETURN_IF_ERROR(ranks.Wait(*send_a, Soon()));
                              LOCKSTEP_RETURN_IF_ERROR(ranks.Wait(*send_b, Soon()));
                              EXPECT_EQ(got_a, a);
                              EXPECT_EQ(got_b, b);
                              return absl::OkStatus();
                            }),
            absl::OkStatus());
}

TEST(Communicator, ADeadlineNamesTheRanksThatDidNotCome) {
  std::atomic<bool> over{false};
  const std::vector<absl::Status> results = RunLocalRanks(3, [&](Communicator& ranks) {
    std::vector<float> data(10);
    if (ranks.rank() == 1) {
      while (!over) std::this_thread::yield();
      // It comes too late, and learns why.
      return AllReduce(ranks, data);
    }
    const absl::Status status = ranks.Wait(*ranks.Start(AllReduceOf(data)), absl::Now() + absl::Milliseconds(100));
    over = true;
    EXPECT_EQ(AllReduce(ranks, data), status) << "the first cause stays";
    return status;
  });
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                MatchesRegex("rank [02]: all_reduce #0 timed out after [0-9]+ms waiting for rank 1"));
  }
}

TEST(Communicator, AbortEndsAWaitThatSleeps) {
  const std::vector<absl::Status> results = RunLocalRanks(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) return absl::OkStatus();
    std::vector<float> data(10);
    const auto call = ranks.Start(AllReduceOf(data));
    std::thread other([&] {
      absl::SleepFor(absl::Milliseconds(100));
      ranks.Abort(absl::AbortedError("enough"));
    });
    const absl::Time begin = absl::Now();
    const absl::Status status = ranks.Wait(*call, Soon());
    EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
    other.join();
    return status;
  });
  EXPECT_EQ(results[0], absl::AbortedError("enough"));
}

TEST(Communicator, ZeroElementsAreACallLikeAnyOther) {
  EXPECT_EQ(RunLocalRanksOk(2,
                            [](Communicator& ranks) {
                              std::vector<float> none;
                              return AllReduce(ranks, none);
                            }),
            absl::OkStatus());
}

TEST(Communicator, RefusesARankOutOfRange) {
  CommunicatorOptions options;
  options.rank = 2;
  options.size = 2;
  EXPECT_EQ(Communicator::Create(options).status().message(), "rank 2 of 2: shared memory is for 1 to 1024 ranks");
}

TEST(Communicator, NamesTheRanksThatDoNotComeForTheMemory) {
  CommunicatorOptions options;
  options.size = 3;
  options.exchange = testing::LocalExchange();
  options.deadline = absl::Now() + absl::Milliseconds(50);
  options.heap_bytes = 0;
  EXPECT_EQ(Communicator::Create(options).status(),
            absl::DeadlineExceededError("these ranks did not come for the shared memory: 1, 2"));
}

// Connects `fd` to the socket of rank 0 that waits at `exchange`, as a stranger would.
void ConnectToRank0(int fd, const Exchange& exchange) {
  const std::string address = *exchange.get("address", Soon());
  const std::string name = address.substr(0, address.find('|'));
  const SocketAddress server = AbstractAddress(name);
  EXPECT_EQ(connect(fd, server.get(), server.size), 0);
}

UniqueFd ConnectAsStranger(const Exchange& exchange) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ConnectToRank0(fd.get(), exchange);
  return fd;
}

absl::Status Create(int rank, const Exchange& exchange, absl::Time deadline = Soon()) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = 2;
  options.exchange = exchange;
  options.deadline = deadline;
  options.heap_bytes = 0;
  return Communicator::Create(options).status();
}

TEST(Communicator, StrangersAtTheSocketDisturbNobody) {
  const Exchange exchange = testing::LocalExchange();
  std::thread rank0([&] { EXPECT_EQ(Create(0, exchange), absl::OkStatus()); });
  std::vector<UniqueFd> strangers;
  for (const size_t bytes : {0, 1, 36, 500}) {  // silent, short, a whole request, and more
    strangers.push_back(ConnectAsStranger(exchange));
    const std::string garbage(bytes, '\x01');
    EXPECT_EQ(send(strangers.back().get(), garbage.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  EXPECT_EQ(Create(1, exchange), absl::OkStatus());
  rank0.join();
}

TEST(Communicator, HundredsOfSilentStrangersDisturbNobody) {
  const Exchange exchange = testing::LocalExchange();
  std::thread rank0([&] { EXPECT_EQ(Create(0, exchange), absl::OkStatus()); });
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(ConnectAsStranger(exchange));
  EXPECT_EQ(Create(1, exchange), absl::OkStatus());
  rank0.join();
}

TEST(Communicator, ASilentStrangerIsDropped) {
  const Exchange exchange = testing::LocalExchange();
  std::thread rank0([&] { EXPECT_EQ(Create(0, exchange), absl::OkStatus()); });
  const UniqueFd silent = ConnectAsStranger(exchange);
  pollfd waited = {silent.get(), POLLIN, 0};
  EXPECT_EQ(poll(&waited, 1, 10000), 1) << "still connected after 10 s";
  EXPECT_EQ(Create(1, exchange), absl::OkStatus());
  rank0.join();
}

TEST(Communicator, AWaitForTheOthersEndsWithAnErrorOfTheCheck) {
  for (const int rank : {0, 1}) {
    Exchange exchange = testing::LocalExchange();
    // A socket that takes connections and never answers. Other runs of this test have the same network namespace.
    const std::string name = absl::StrCat("nobody-", getpid());
    ASSERT_EQ(exchange.set("address", name + "|0123456789abcdef0123456789abcdef"), absl::OkStatus());
    const UniqueFd listener = ListenAt(AbstractAddress(name));
    ASSERT_TRUE(listener.valid());
    exchange.check = [] { return absl::AbortedError("rank 2 failed"); };
    EXPECT_EQ(Create(rank, exchange), absl::AbortedError("rank 2 failed"));
  }
}

absl::Duration ProcessorTime() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Rank 0's first descriptors are the memory and the socket, then one for each connection.
TEST(Communicator, Rank0OutOfDescriptorsFailsAtOnceAndSaysSo) {
  const std::string limit = "Too many open files .the soft limit of open files is [0-9]+ .RLIMIT_NOFILE.; raise it .*";
  const std::string doing[] = {"memfd_create", "making a Unix socket", "accepting connection 1 of 1"};
  for (int free = 0; free < 3; ++free) {
    const Exchange exchange = testing::LocalExchange();
    const UniqueFd spare(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    std::thread other([&] {
      if (free == 2) ConnectToRank0(spare.get(), exchange);
    });
    const FewDescriptors few(free);
    const absl::Duration before = ProcessorTime();
    const absl::Time begin = absl::Now();
    const absl::Status status = Create(0, exchange);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), MatchesRegex(doing[free] + ": " + limit));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
    EXPECT_LT(ProcessorTime() - before, absl::Seconds(1));
    other.join();
  }
}

}  // namespace
}  // namespace lockstep::comm::shm
