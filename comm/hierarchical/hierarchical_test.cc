#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/hierarchical/internal/topology.h"
#include "lockstep/comm/hierarchical/testing/simulated_hosts.h"

namespace lockstep::comm::hierarchical {
namespace {

using internal::Topology;
using internal::TopologyOf;
using testing::ContextOf;
using testing::RunOn;

BackendInfo Hierarchical() { return *FindBackend("hierarchical"); }

c10::intrusive_ptr<c10d::Work> AllReduce(c10d::Backend& backend, at::Tensor& tensor, const c10d::ReduceOp& op) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return backend.allreduce(tensors, options);
}

const std::vector<std::vector<int>> kLayouts = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1},
                                                {0, 1, 1},    {0, 0, 1, 2}, {0, 0, 1, 1, 2, 2}};

// Where the work is divided: into two or three parts, into pieces, and into small tensors and others.
const std::vector<int64_t> kCounts = {0, 1, 2, 3, 5, 7, 2047, 2048, 2049, 65535, 65536, 65537, 131073, 262145, 700001};

TEST(Hierarchical, SumsOverEveryLayout) {
  for (const std::vector<int>& hosts : kLayouts) {
    const auto size = static_cast<int64_t>(hosts.size());
    EXPECT_EQ(RunOn(hosts,
                    [&](c10d::Backend& backend) {
                      for (const int64_t count : kCounts) {
                        const at::Tensor base = at::arange(count, at::kFloat);
                        at::Tensor sum = base + backend.getRank(), average = sum.clone(), largest = sum.clone();
                        AllReduce(backend, sum, c10d::ReduceOp::SUM)->wait();
                        AllReduce(backend, average, c10d::ReduceOp::AVG)->wait();
                        AllReduce(backend, largest, c10d::ReduceOp::MAX)->wait();
                        EXPECT_TRUE(at::equal(sum, base * size + size * (size - 1) / 2)) << count;
                        EXPECT_TRUE(at::equal(average, (base * size + size * (size - 1) / 2) / size)) << count;
                        EXPECT_TRUE(at::equal(largest, base + (size - 1))) << count;
                      }
                    }),
              absl::OkStatus());
  }
}

TEST(Hierarchical, EveryRankHasTheSameBits) {
  for (const std::vector<int>& hosts : kLayouts) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t count : {1001, 300001}) {
        std::vector<at::Tensor> sums(hosts.size());
        EXPECT_EQ(RunOn(hosts,
                        [&](c10d::Backend& backend) {
                          at::Tensor x =
                              (at::arange(count, at::kDouble) + backend.getRank() + 1).reciprocal().to(dtype);
                          AllReduce(backend, x, c10d::ReduceOp::SUM)->wait();
                          sums[backend.getRank()] = x;
                        }),
                  absl::OkStatus());
        for (const at::Tensor& sum : sums) EXPECT_TRUE(at::equal(sum, sums[0])) << dtype << " " << count;
      }
    }
  }
}

// One rank's value in each place is not finite: the last rank's, and the sum and the largest value show it.
TEST(Hierarchical, NotFiniteValuesReachEveryRank) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<int>& hosts : kLayouts) {
    for (const int64_t count : {7, 300001}) {
      EXPECT_EQ(RunOn(hosts,
                      [&](c10d::Backend& backend) {
                        at::Tensor sum = at::ones({count}, at::kFloat);
                        if (backend.getRank() == backend.getSize() - 1) {
                          sum[0] = std::nan("");
                          sum[count - 1] = infinity;
                          sum[count / 2] = -infinity;
                        }
                        at::Tensor largest = sum.clone();
                        AllReduce(backend, sum, c10d::ReduceOp::SUM)->wait();
                        AllReduce(backend, largest, c10d::ReduceOp::MAX)->wait();
                        EXPECT_TRUE(sum[0].isnan().item<bool>() && largest[0].isnan().item<bool>()) << count;
                        EXPECT_EQ(sum[count - 1].item<double>(), infinity);
                        EXPECT_EQ(largest[count - 1].item<double>(), infinity);
                        EXPECT_EQ(sum[count / 2].item<double>(), -infinity);
                        EXPECT_EQ(largest[count / 2].item<double>(), 1);
                        EXPECT_EQ(sum[1].item<double>(), backend.getSize());
                      }),
                absl::OkStatus());
    }
  }
}

// With one rank a host, too, which the backend does not refuse.
const std::vector<std::vector<int>> kGathered = {{0, 0, 1, 1}, {0, 0, 0, 1},       {0, 1, 2, 2, 0, 1},      {0, 1},
                                                 {0, 1, 2},    {0, 1, 0, 0, 1, 1}, {1, 0, 0, 0, 0, 1, 1, 1}};

at::Tensor ValueOf(int rank, int64_t count, at::ScalarType dtype) {
  return (at::arange(count, at::kLong) * 7 + rank * 31).remainder(dtype == at::kBool ? 2 : 101).to(dtype);
}

TEST(Hierarchical, GathersOverEveryLayout) {
  for (const std::vector<int>& hosts : kGathered) {
    const auto size = static_cast<int>(hosts.size());
    const auto gather = [&](c10d::Backend& backend) {
      for (const at::ScalarType dtype : {at::kFloat, at::kByte, at::kBool, at::kComplexDouble}) {
        for (const int64_t count : {0, 1, 7, 2049, 65537, 700001}) {
          if (count > 300000 && dtype != at::kByte) continue;
          at::Tensor own = ValueOf(backend.getRank(), count, dtype), whole = at::zeros({size, count}, dtype);
          backend._allgather_base(whole, own)->wait();
          std::vector<std::vector<at::Tensor>> list(1);
          for (int rank = 0; rank < size; ++rank) list[0].push_back(at::zeros({count}, dtype));
          std::vector<at::Tensor> inputs = {own};
          backend.allgather(list, inputs)->wait();
          for (int rank = 0; rank < size; ++rank) {
            const at::Tensor expected = ValueOf(rank, count, dtype);
            EXPECT_TRUE(at::equal(whole[rank], expected)) << size << " ranks, " << count << " of " << dtype;
            EXPECT_TRUE(at::equal(list[0][rank], expected)) << size << " ranks, " << count << " of " << dtype;
          }
        }
      }
    };
    EXPECT_EQ(RunOn(hosts, gather), absl::OkStatus());
  }
}

// Its input may be its part of the output.
TEST(Hierarchical, GathersInPlaceBetweenOtherCalls) {
  for (const std::vector<int>& hosts : {kLayouts[0], kLayouts[5]}) {
    const auto size = static_cast<int64_t>(hosts.size());
    const auto body = [&](c10d::Backend& backend) {
      std::vector<at::Tensor> tensors;
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (int64_t i = 0; i < 60; ++i) {
        const int64_t count = kCounts[i * 7 % kCounts.size()];
        tensors.push_back(at::full({size, count}, backend.getRank() + i, at::kFloat));
        at::Tensor own = tensors.back()[backend.getRank()];
        works.push_back(i % 3 == 0 ? AllReduce(backend, tensors.back(), c10d::ReduceOp::SUM)
                                   : backend._allgather_base(tensors.back(), own));
      }
      for (const auto& work : works) work->wait();
      for (int64_t i = 0; i < 60; ++i) {
        const at::Tensor ranks = at::arange(size, at::kFloat).view({size, 1}) + i;
        const at::Tensor expected =
            i % 3 == 0 ? at::full_like(tensors[i], size * i + size * (size - 1) / 2) : ranks.expand_as(tensors[i]);
        EXPECT_TRUE(at::equal(tensors[i], expected)) << i;
      }
    };
    EXPECT_EQ(RunOn(hosts, body), absl::OkStatus());
  }
}

TEST(Hierarchical, ManyCallsOfMixedSizesMoveAtOnce) {
  for (const std::vector<int>& hosts : kLayouts) {
    const auto size = static_cast<int64_t>(hosts.size());
    EXPECT_EQ(
        RunOn(hosts,
              [&](c10d::Backend& backend) {
                std::vector<at::Tensor> tensors;
                std::vector<c10::intrusive_ptr<c10d::Work>> works;
                for (int64_t i = 0; i < 60; ++i) {
                  tensors.push_back(at::full({kCounts[i * 7 % kCounts.size()]}, i, i % 2 ? at::kFloat : at::kInt));
                  works.push_back(AllReduce(backend, tensors.back(), c10d::ReduceOp::SUM));
                }
                for (const auto& work : works) work->wait();
                for (int64_t i = 0; i < 60; ++i) {
                  EXPECT_TRUE(at::equal(tensors[i], at::full_like(tensors[i], i * size))) << i;
                }
              }),
        absl::OkStatus());
  }
}

TEST(Hierarchical, CallsMoveWhileNobodyWaits) {
  absl::BlockingCounter others(3);
  EXPECT_EQ(RunOn(kLayouts[0],
                  [&](c10d::Backend& backend) {
                    at::Tensor first = at::ones({300000}), second = at::ones({3});
                    const auto a = AllReduce(backend, first, c10d::ReduceOp::SUM);
                    const auto b = AllReduce(backend, second, c10d::ReduceOp::SUM);
                    if (backend.getRank() == 1) others.Wait();  // makes no call meanwhile
                    a->wait(std::chrono::seconds(10));
                    b->wait(std::chrono::seconds(10));
                    if (backend.getRank() != 1) others.DecrementCount();
                    EXPECT_TRUE(at::equal(first, at::full({300000}, 4.0F)));
                    EXPECT_TRUE(at::equal(second, at::full({3}, 4.0F)));
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, AbortEndsCallsUnderWayAtOnce) {
  EXPECT_EQ(RunOn(
                kLayouts[0],
                [](c10d::Backend& backend) {
                  if (backend.getRank() == 3) return;
                  at::Tensor large = at::ones({5000000}), small = at::ones({1});
                  const auto a = AllReduce(backend, large, c10d::ReduceOp::SUM);
                  const auto b = AllReduce(backend, small, c10d::ReduceOp::SUM);
                  // In the middle: the ranks of host 0 have sent pieces that rank 3's host does not reduce.
                  std::thread aborter([&] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(200));
                    backend.abort();
                  });
                  const auto begin = std::chrono::steady_clock::now();
                  for (const auto& work : {a, b}) {
                    const absl::Status status = TorchStatus("", [&] { work->wait(); });
                    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
                  }
                  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
                  aborter.join();
                  const auto late = AllReduce(backend, small, c10d::ReduceOp::SUM);
                  EXPECT_FALSE(TorchStatus("", [&] { late->wait(); }).ok());
                },
                /*meet_at_the_end=*/false),
            absl::OkStatus());
}

TEST(Hierarchical, ATensorOfAnotherSizeOnAnotherHostIsAnError) {
  EXPECT_EQ(RunOn(
                kLayouts[0],
                [](c10d::Backend& backend) {
                  at::Tensor x = at::ones({backend.getRank() < 2 ? 100 : 101});
                  const auto work = AllReduce(backend, x, c10d::ReduceOp::SUM);
                  const absl::Status status = TorchStatus("", [&] { work->wait(); });
                  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
                },
                /*meet_at_the_end=*/false),
            absl::OkStatus());
}

TEST(Hierarchical, RanksThatGatherOtherTensorsAreToldBoth) {
  EXPECT_EQ(RunOn(
                kLayouts[0],
                [](c10d::Backend& backend) {
                  at::Tensor own = at::ones({backend.getRank() < 2 ? 100 : 101}), all = at::ones({4 * own.numel()});
                  const auto work = backend._allgather_base(all, own);
                  const absl::Status status = TorchStatus("", [&] { work->wait(); });
                  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
                  if (backend.getRank() != 0) return;
                  EXPECT_EQ(status.message(),
                            "rank 0: rank 2 sent piece 0 of all_gather #0 (404 bytes; float32 [404]); expected piece 0 "
                            "of all_gather #0 (400 bytes; float32 [400])");
                },
                /*meet_at_the_end=*/false),
            absl::OkStatus());
}

TEST(Hierarchical, ARankThatReducesWhileAnotherGathersIsToldSo) {
  EXPECT_EQ(RunOn(
                kLayouts[0],
                [](c10d::Backend& backend) {
                  at::Tensor own = at::ones({100}), all = at::ones({400});
                  const bool gathers = backend.getRank() < 2;
                  const auto work =
                      gathers ? backend._allgather_base(all, own) : AllReduce(backend, own, c10d::ReduceOp::SUM);
                  const absl::Status status = TorchStatus("", [&] { work->wait(); });
                  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
                  if (backend.getRank() != 0) return;
                  EXPECT_EQ(status.message(),
                            "rank 0: rank 2 sent piece 0 of all_reduce #0 (400 bytes; float32 [100], sum); expected "
                            "piece 0 of all_gather #0 (400 bytes; float32 [400])");
                },
                /*meet_at_the_end=*/false),
            absl::OkStatus());
}

TEST(Hierarchical, AReductionThatTheDtypeLacksIsRefusedBeforeAnythingIsSent) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    at::Tensor x = at::ones({10}, at::kInt);
                    const absl::Status status =
                        TorchStatus("", [&] { AllReduce(backend, x, c10d::ReduceOp::AVG)->wait(); });
                    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
                    AllReduce(backend, x, c10d::ReduceOp::SUM)->wait();
                    EXPECT_TRUE(at::equal(x, at::full({10}, 4, at::kInt)));
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, CallsUnderWayMayBeWaitedForInAnyOrder) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    std::vector<at::Tensor> tensors;
                    std::vector<c10::intrusive_ptr<c10d::Work>> works;
                    for (int i = 0; i < 6; ++i) {
                      tensors.push_back(at::full({5000 + i}, i));
                      works.push_back(AllReduce(backend, tensors.back(), c10d::ReduceOp::SUM));
                      if (backend.getRank() == 1) works.back()->wait();  // one call at a time
                    }
                    if (backend.getRank() == 2) std::reverse(works.begin(), works.end());
                    for (const auto& work : works) {
                      while (backend.getRank() == 3 && !work->isCompleted()) std::this_thread::yield();
                      work->wait();
                    }
                    for (int i = 0; i < 6; ++i) EXPECT_TRUE(at::equal(tensors[i], at::full({5000 + i}, 4 * i)));
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, TheOtherCollectivesWork) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    std::vector<at::Tensor> x = {at::full({3}, backend.getRank())};
                    c10d::BroadcastOptions from_2;
                    from_2.rootRank = 2;
                    backend.broadcast(x, from_2)->wait();
                    EXPECT_TRUE(at::equal(x[0], at::full({3}, 2)));
                    std::vector<at::Tensor> received = {at::zeros({2}, at::kLong)};
                    std::vector<std::vector<at::Tensor>> sent;
                    for (int64_t rank = 0; backend.getRank() == 0 && rank < 4; ++rank)
                      sent.resize(1), sent[0].push_back(at::full({2}, rank));
                    backend.scatter(received, sent)->wait();
                    EXPECT_TRUE(at::equal(received[0], at::full({2}, backend.getRank())));
                  }),
            absl::OkStatus());
}

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
size_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// All ranks are in this process: a connection between two of them takes two descriptors.
TEST(Hierarchical, NoRankConnectsToAllOthers) {
  const std::vector<int> hosts = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
  const size_t full_mesh = hosts.size() * (hosts.size() - 1), before = OpenDescriptors();
  absl::Barrier* const ranks_are_made = new absl::Barrier(static_cast<int>(hosts.size()));
  EXPECT_EQ(RunOn(hosts,
                  [&](c10d::Backend& backend) {
                    at::Tensor x = at::ones({1000}, at::kFloat);
                    AllReduce(backend, x, c10d::ReduceOp::SUM)->wait();
                    if (ranks_are_made->Block()) {
                      EXPECT_LT(OpenDescriptors(), before + full_mesh);
                      delete ranks_are_made;
                    }
                  }),
            absl::OkStatus());
}
#endif

TEST(Hierarchical, ADeadlineEndsAWait) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    at::Tensor x = at::ones({10});
                    if (backend.getRank() == 3) return;
                    const auto work = AllReduce(backend, x, c10d::ReduceOp::SUM);
                    const absl::Status status = TorchStatus("", [&] { work->wait(std::chrono::milliseconds(200)); });
                    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, IsForSeveralHostsWithSeveralRanks) {
  EXPECT_EQ(Hierarchical().usable(ContextOf({0, 0}, 0)).message(), "hierarchical is for ranks on several hosts");
  EXPECT_EQ(Hierarchical().usable(ContextOf({0, 1}, 0)).message(), "hierarchical is for hosts with several ranks");
  EXPECT_EQ(Hierarchical().usable(ContextOf({0, 1, 1}, 0)), absl::OkStatus());
  EXPECT_FALSE(Hierarchical().usable(ContextOf({}, 0)).ok());
}

TEST(Topology, GroupsRanksByHost) {
  const Topology topology = TopologyOf(ContextOf({7, 3, 7, 3, 3}, 4).ranks, 4);
  EXPECT_EQ(topology.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(topology.host, 1);
  EXPECT_EQ(topology.local_rank, 2);
  EXPECT_FALSE(topology.even());
  EXPECT_EQ(topology.column(), (std::vector<int>{0, 1}));
  EXPECT_EQ(TopologyOf(ContextOf({7, 3, 7, 3}, 3).ranks, 3).column(), (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace lockstep::comm::hierarchical
