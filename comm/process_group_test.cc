#include "lockstep/comm/process_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/comm/testing/thread_backend.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

absl::Status Reduced(ReduceOp op, const std::vector<double>& by_rank, double expected) {
  return testing::RunRanksOk(static_cast<int>(by_rank.size()), [&](ProcessGroup& group) {
    const at::Tensor tensor = at::full({2, 3}, by_rank[group.rank()], at::kDouble);
    EXPECT_EQ(group.AllReduce(tensor, op), absl::OkStatus());
    EXPECT_TRUE(tensor.equal(at::full({2, 3}, expected, at::kDouble))) << tensor;
  });
}

TEST(ProcessGroup, AllReduceReducesOverAllRanks) {
  EXPECT_EQ(Reduced(ReduceOp::kSum, {1, 2, 4}, 7), absl::OkStatus());
  EXPECT_EQ(Reduced(ReduceOp::kAvg, {1, 2, 6}, 3), absl::OkStatus());
  EXPECT_EQ(Reduced(ReduceOp::kProduct, {3, 2, 4}, 24), absl::OkStatus());
  EXPECT_EQ(Reduced(ReduceOp::kMin, {3, 2, 4}, 2), absl::OkStatus());
  EXPECT_EQ(Reduced(ReduceOp::kMax, {3, 2, 4}, 4), absl::OkStatus());
  EXPECT_EQ(Reduced(ReduceOp::kSum, {5}, 5), absl::OkStatus());
}

TEST(ProcessGroup, AReductionOfOneRankIsDoneAtOnce) {
  EXPECT_EQ(testing::RunRanksOk(1,
                                [](ProcessGroup& group) {
                                  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct}) {
                                    const at::Tensor tensor = at::full({2, 3}, 5.0);
                                    Work work = group.AllReduceAsync(tensor, op);
                                    EXPECT_TRUE(work.IsCompleted());
                                    EXPECT_EQ(work.Wait(), absl::OkStatus());
                                    EXPECT_TRUE(tensor.equal(at::full({2, 3}, 5.0)));
                                  }
                                  EXPECT_THAT(group.AllReduce(at::zeros({1}, at::kLong), ReduceOp::kAvg).message(),
                                              HasSubstr("all_reduce #3 of Long [1] on cpu: an average needs"));
                                }),
            absl::OkStatus());
}

TEST(ProcessGroup, ASparseTensorHasASumOnlyAndThatWhereTheBackendHasIt) {
  EXPECT_EQ(testing::RunRanksOk(2,
                                [](ProcessGroup& group) {
                                  const at::Tensor sparse = at::ones({2, 3}).to_sparse();
                                  const absl::Status no_sum = group.AllReduce(sparse);
                                  EXPECT_EQ(no_sum.code(), absl::StatusCode::kUnimplemented);
                                  EXPECT_THAT(no_sum.message(),
                                              HasSubstr("the threads backend has no sum of sparse tensors"));
                                  EXPECT_THAT(group.AllReduce(sparse, ReduceOp::kMax).message(),
                                              HasSubstr("the tensor is sparse, which has a sum only, found op max"));
                                  EXPECT_THAT(group.Broadcast(sparse, 0).message(), HasSubstr("is not dense"));
                                  EXPECT_EQ(group.Barrier(), absl::OkStatus());  // The group goes on.
                                }),
            absl::OkStatus());
}

TEST(ProcessGroup, BroadcastGivesEveryRankTheRootsTensor) {
  EXPECT_EQ(testing::RunRanksOk(3,
                                [](ProcessGroup& group) {
                                  for (int root = 0; root < 3; ++root) {
                                    const at::Tensor tensor = at::full({4}, group.rank(), at::kLong);
                                    EXPECT_EQ(group.Broadcast(tensor, root), absl::OkStatus());
                                    EXPECT_TRUE(tensor.equal(at::full({4}, root, at::kLong)));
                                  }
                                }),
            absl::OkStatus());
}

TEST(ProcessGroup, AllGatherCollectsEachRanksTensor) {
  EXPECT_EQ(testing::RunRanksOk(3,
                                [](ProcessGroup& group) {
                                  std::vector<at::Tensor> outputs;
                                  for (int i = 0; i < 3; ++i) outputs.push_back(at::zeros({2}));
                                  EXPECT_EQ(group.AllGather(outputs, at::full({2}, 1.0 * group.rank())),
                                            absl::OkStatus());
                                  for (int i = 0; i < 3; ++i) EXPECT_TRUE(outputs[i].equal(at::full({2}, 1.0 * i)));
                                }),
            absl::OkStatus());
}

TEST(ProcessGroup, SeveralAsynchronousCollectivesAreUnderWayAtOnce) {
  EXPECT_EQ(testing::RunRanksOk(
                2,
                [](ProcessGroup& group) {
                  std::vector<at::Tensor> tensors;
                  std::vector<Work> works;
                  for (int i = 0; i < 10; ++i) {
                    tensors.push_back(at::full({3}, 1.0 * (i + group.rank())));
                    works.push_back(group.AllReduceAsync(tensors.back(), i % 2 ? ReduceOp::kSum : ReduceOp::kAvg));
                  }
                  for (int i = 9; i >= 0; --i) {
                    EXPECT_EQ(works[i].Wait(), absl::OkStatus());
                    EXPECT_EQ(works[i].Wait(), absl::OkStatus());  // again: the same answer, no second division
                    EXPECT_TRUE(works[i].IsCompleted());
                    EXPECT_EQ(tensors[i][0].item<double>(), i % 2 ? 2 * i + 1 : i + 0.5);
                  }
                  EXPECT_EQ(group.Barrier(), absl::OkStatus());
                }),
            absl::OkStatus());
}

TEST(ProcessGroup, ATensorThatRequiresGradIsReducedInPlace) {
  EXPECT_EQ(testing::RunRanksOk(2,
                                [](ProcessGroup& group) {
                                  const at::Tensor parameter = at::ones({3}).requires_grad_();
                                  EXPECT_EQ(group.AllReduce(parameter, ReduceOp::kAvg), absl::OkStatus());
                                  EXPECT_EQ(group.Broadcast(parameter, 0), absl::OkStatus());
                                  EXPECT_TRUE(parameter.is_leaf());
                                }),
            absl::OkStatus());
}

TEST(ProcessGroup, RefusesBadArgumentsByNameBeforeAnythingIsSent) {
  EXPECT_EQ(testing::RunRanksOk(
                2,
                [](ProcessGroup& group) {
                  const std::string rank = "rank " + std::to_string(group.rank());
                  EXPECT_EQ(group.AllReduce(at::zeros({4, 6}).slice(1, 0, 3)),
                            absl::InvalidArgumentError(rank +
                                                       ": all_reduce #0 of Float [4, 3] on cpu: the tensor has gaps or "
                                                       "overlaps in memory: its strides are [6, 1]"));
                  EXPECT_EQ(group.AllReduce(at::Tensor()),
                            absl::InvalidArgumentError(
                                rank + ": all_reduce #0 of an undefined tensor: the tensor is undefined"));
                  EXPECT_EQ(group.Broadcast(at::zeros({1}), 2),
                            absl::InvalidArgumentError(
                                rank + ": broadcast #0 of Float [1] on cpu: root 2 is not a rank of a group of 2"));
                  EXPECT_THAT(group.AllReduce(at::zeros({1}, at::kLong), ReduceOp::kAvg).message(),
                              HasSubstr("an average needs a floating-point"));
                  EXPECT_THAT(group.AllReduce(at::zeros({1}, at::device(at::kMeta))).message(),
                              HasSubstr("the group has no backend for meta tensors, only cpu:threads"));
                  EXPECT_THAT(group.Reduce(at::eye(2).to_sparse(), 0).message(), HasSubstr("the tensor is not dense"));
                  EXPECT_THAT(group.AllGather({at::zeros({1})}, at::zeros({1})).message(),
                              HasSubstr("expected 2 outputs, one a rank, found 1"));
                  EXPECT_THAT(group.AllGather({at::zeros({1}), at::zeros({2})}, at::zeros({1})).message(),
                              HasSubstr("output 1 is Float [2] on cpu, expected Float [1] on cpu"));
                  // None of these put the ranks out of step.
                  EXPECT_EQ(group.failure(), absl::OkStatus());
                  EXPECT_EQ(group.Barrier(), absl::OkStatus());
                }),
            absl::OkStatus());
}

TEST(ProcessGroup, RefusesListsSplitsAndRanksByNameToo) {
  EXPECT_EQ(
      testing::RunRanksOk(
          2,
          [](ProcessGroup& group) {
            const at::Tensor one = at::zeros({1}), two = at::zeros({2}), whole = at::zeros({1}, at::kLong);
            const int other = 1 - group.rank();
            const std::string rank = "rank " + std::to_string(group.rank());
            EXPECT_EQ(group.ReduceScatterTensor(two, two),
                      absl::InvalidArgumentError(
                          rank + ": reduce_scatter_tensor #0 of Float [2] on cpu: input is Float [2] on "
                                 "cpu, expected 4 elements: 2 for each of 2 ranks"));
            EXPECT_THAT(group.AllGatherIntoTensor(at::zeros({2}, at::kLong), one).message(),
                        HasSubstr("output is Long [2] on cpu, expected the dtype and device of Float [1] on cpu"));
            EXPECT_THAT(group.AllReduceCoalesced({one, at::zeros({2, 2}).t()}).message(),
                        HasSubstr("tensor 1: the tensor is not contiguous: its strides are [1, 2]"));
            EXPECT_THAT(group.AllReduceCoalesced({}).message(), HasSubstr("expected one tensor or more, found none"));
            EXPECT_THAT(
                group.Gather({one, one}, one, other).message(),
                HasSubstr("expected no outputs on a rank that is not root " + std::to_string(other) + ", found 2"));
            EXPECT_THAT(group.AllToAll({one}, {one, one}).message(),
                        HasSubstr("expected 2 outputs, one a rank, found 1"));
            EXPECT_THAT(group.AllToAllSingle(at::zeros({3}), at::zeros({3})).message(),
                        HasSubstr("input is Float [3] on cpu, whose first dimension 2 ranks cannot share equally"));
            EXPECT_THAT(group.AllToAllSingle(two, two, {1, 1}, {1, 2}).message(),
                        HasSubstr("input splits [1, 2] of Float [2] on cpu: their sum is 3, expected 2"));
            EXPECT_THAT(group.AllToAllSingle(two, two, {3, -1}, {1, 1}).message(), HasSubstr("a split is negative"));
            EXPECT_THAT(group.AllReduce(one, ReduceOp::kBxor).message(),
                        HasSubstr("a bitwise reduction needs an integer or bool tensor, found Float"));
            EXPECT_THAT(group.AllReduce(at::zeros({1}, at::kComplexFloat), ReduceOp::kMin).message(),
                        HasSubstr("a minimum or maximum needs numbers that have an order, found ComplexFloat"));
            EXPECT_THAT(group.AllReduce(at::zeros({1}, at::kComplexFloat).conj()).message(),
                        HasSubstr("the tensor is a lazily conjugated or negated view"));
            EXPECT_EQ(group.Send(one, group.rank()),
                      absl::InvalidArgumentError(rank + ": send #0 to " + rank +
                                                 " of Float [1] on cpu: a rank cannot send to itself"));
            EXPECT_THAT(group.Recv(one, 2).status().message(), HasSubstr("source 2 is not a rank of a group of 2"));
            EXPECT_THAT(group.Send(one, other, -1).message(), HasSubstr("tag -1 is negative"));
            EXPECT_EQ(group.BatchIsendIrecv({{P2POp::Kind::kSend, whole, other}, {P2POp::Kind::kRecv, whole, 7}})
                          .status()
                          .message(),
                      rank +
                          ": batch_isend_irecv: operation 1, recv of Long [1] on cpu: source 7 is not a rank of a "
                          "group of 2");
            EXPECT_EQ(group.failure(), absl::OkStatus());
            EXPECT_EQ(group.Barrier(), absl::OkStatus());
          }),
      absl::OkStatus());
}

TEST(ProcessGroup, AMonitoredBarrierNamesTheRanksThatDidNotArrive) {
  const auto results = testing::RunRanks(4, [](ProcessGroup& group) {
    if (group.rank() % 2 == 1) group.store()->wait({"named"});
    if (group.rank() % 2 == 1) return absl::OkStatus();
    const absl::Status status = group.MonitoredBarrier(absl::Milliseconds(200));
    group.store()->set("named", "");
    return status;
  });
  EXPECT_EQ(results[0], absl::DeadlineExceededError("rank 0: monitored_barrier #0: these ranks did not arrive within "
                                                    "200ms: 1, 3"));
  EXPECT_EQ(results[2].code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ProcessGroup, AMonitoredBarrierNamesRank0Too) {
  const auto results = testing::RunRanks(3, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.store()->wait({"named by 1", "named by 2"});
      return absl::OkStatus();
    }
    const absl::Status status = group.MonitoredBarrier(absl::Milliseconds(200));
    group.store()->set(absl::StrCat("named by ", group.rank()), "");
    return status;
  });
  for (const int rank : {1, 2}) {
    EXPECT_EQ(results[rank], absl::DeadlineExceededError(absl::StrCat(
                                 "rank ", rank, ": monitored_barrier #0: these ranks did not arrive within 200ms: 0")));
  }
}

TEST(ProcessGroup, BackendsMadeElsewhereMustFitTogether) {
  testing::ThreadHub hub(2, absl::Seconds(1));
  EXPECT_EQ(ProcessGroup::FromC10d({}, nullptr).status(),
            absl::InvalidArgumentError("a process group needs a backend"));
  EXPECT_EQ(ProcessGroup::FromC10d({{c10::DeviceType::CPU, nullptr}}, nullptr).status(),
            absl::InvalidArgumentError("the backend for cpu tensors is null"));
  EXPECT_EQ(ProcessGroup::FromC10d({{c10::DeviceType::CPU, testing::MakeThreadBackend(hub, 0)},
                                    {c10::DeviceType::CUDA, testing::MakeThreadBackend(hub, 1)}},
                                   nullptr)
                .status(),
            absl::InvalidArgumentError("the backend for cuda tensors is rank 1 of 2, expected rank 0 of 2"));
  auto group = ProcessGroup::FromC10d({{c10::DeviceType::CPU, testing::MakeThreadBackend(hub, 1)}}, nullptr);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->rank(), 1);
  EXPECT_EQ(
      (*group)->NewGroup({0, 1}).status(),
      absl::FailedPreconditionError("rank 1: new_group \"group 0\" of ranks 0, 1: this group's backends were made "
                                    "elsewhere; make the sub-group's there too"));
  EXPECT_EQ((*group)->NewGroup({1, 1}).status(),
            absl::InvalidArgumentError("rank 1: new_group \"group 1\" of ranks 1, 1: rank 1 is named twice"));
  EXPECT_EQ((*group)->MonitoredBarrier(absl::Seconds(1)),
            absl::FailedPreconditionError("rank 1: monitored_barrier #0: the group has no store"));
}

TEST(ProcessGroup, ARankThatEndsFailsTheOthersAndTheGroupStaysFailed) {
  const auto results = testing::RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) return absl::InternalError("out of paper");
    const absl::Status first = group.AllReduce(at::zeros({2}));
    EXPECT_EQ(first.message(), "rank 0: all_reduce #0 of Float [2] on cpu: rank 1 left the group: out of paper");
    EXPECT_EQ(group.failure(), first);
    EXPECT_EQ(group.Barrier(), first);
    EXPECT_EQ(group.Broadcast(at::zeros({7}), 0), first);
    return first;
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable);
}

TEST(ProcessGroup, DifferentCollectivesAtOnePlaceFailOnEveryRankNamingBoth) {
  const auto results = testing::RunRanks(2, [](ProcessGroup& group) {
    return group.rank() == 0 ? group.AllReduce(at::zeros({2})) : group.Broadcast(at::zeros({3}), 0);
  });
  for (const absl::Status& result : results) {
    EXPECT_THAT(result.message(),
                HasSubstr("rank 0 called ALLREDUCE of Float [2], but rank 1 called BROADCAST from 0 of Float [3]"));
  }
}

TEST(ProcessGroup, ACollectiveThatARankNeverJoinsTimesOutNamingIt) {
  const auto results = testing::RunRanks(
      3,
      [](ProcessGroup& group) {
        if (group.rank() == 1) absl::SleepFor(absl::Milliseconds(400));
        return group.rank() == 1 ? absl::OkStatus() : group.Barrier();
      },
      absl::Milliseconds(100));
  EXPECT_EQ(results[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(results[0].message(), "rank 0: barrier #0: timed out after 100 ms waiting for ranks 1");
}

}  // namespace
}  // namespace lockstep::comm
