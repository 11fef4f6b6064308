// The part of the suite about reductions.

#include <ATen/ATen.h>

#include "gmock/gmock.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/testing/backend_conformance.h"
#include "lockstep/comm/testing/reference.h"
#include "lockstep/comm/tree_sum/tree_sum.h"

namespace lockstep::comm::testing {
namespace {

absl::Status AllReducePremulSum(ProcessGroup& group, const at::Tensor& tensor, double factor) {
  return internal::GroupAccess::AllReducePremulSumAsync(group, tensor, factor).Wait();
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kBor,     ReduceOp::kBxor};

std::vector<at::Tensor> InputsOf(const ProcessGroup& group, at::IntArrayRef shape, at::ScalarType dtype, int seed) {
  std::vector<at::Tensor> inputs;
  for (int rank = 0; rank < group.size(); ++rank) inputs.push_back(Input(rank, group.size(), shape, dtype, seed));
  return inputs;
}

std::string Case(ReduceOp op, at::ScalarType dtype) { return std::string(NameOf(op)) + " of " + c10::toString(dtype); }

// Returns whether the call was done. Otherwise it must say that it cannot be, and the group goes on.
bool Done(const absl::Status& status, ReduceOp op, at::ScalarType dtype) {
  if (!CheckReduceOp(op, dtype).ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << Case(op, dtype) << status;
    return false;
  }
  if (status.code() == absl::StatusCode::kUnimplemented) {
    EXPECT_THAT(status.message(), ::testing::HasSubstr(c10::toString(dtype)));
    return false;
  }
  EXPECT_EQ(status, absl::OkStatus()) << Case(op, dtype);
  return status.ok();
}

void ForEachOpAndDtype(const std::function<void(ReduceOp op, at::ScalarType dtype)>& body) {
  for (const at::ScalarType dtype : AllDtypes()) {
    for (const ReduceOp op : kOps) body(op, dtype);
  }
}

TEST_P(BackendConformance, AllReduceIsRightForEveryOpAndDtypeOrUnimplemented) {
  ForEachSize([](ProcessGroup& group) {
    ForEachOpAndDtype([&](ReduceOp op, at::ScalarType dtype) {
      const auto inputs = InputsOf(group, {3, 5}, dtype, 1);
      const at::Tensor tensor = inputs[group.rank()].clone();
      if (Done(group.AllReduce(tensor, op), op, dtype)) {
        EXPECT_TRUE(Same(tensor, Reduced(inputs, op))) << Case(op, dtype);
      }
    });
    EXPECT_EQ(group.failure(), absl::OkStatus());
  });
}

TEST_P(BackendConformance, TheUsualDtypesAreImplemented) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                       at::kShort, at::kChar, at::kByte, at::kBool, at::kComplexFloat}) {
      EXPECT_EQ(group.AllReduce(at::ones({2}, dtype)), absl::OkStatus()) << c10::toString(dtype);
    }
  });
}

TEST_P(BackendConformance, ReduceGivesTheResultToRoot) {
  ForEachSize([](ProcessGroup& group) {
    ForEachOpAndDtype([&](ReduceOp op, at::ScalarType dtype) {
      const int root = static_cast<int>(dtype) % group.size();
      const auto inputs = InputsOf(group, {7}, dtype, 2);
      const at::Tensor tensor = inputs[group.rank()].clone();
      if (Done(group.Reduce(tensor, root, op), op, dtype) && group.rank() == root) {
        EXPECT_TRUE(Same(tensor, Reduced(inputs, op))) << Case(op, dtype);
      }
    });
  });
}

TEST_P(BackendConformance, ReduceScatterGivesEachRankItsPart) {
  ForEachSize([](ProcessGroup& group) {
    ForEachOpAndDtype([&](ReduceOp op, at::ScalarType dtype) {
      const auto wholes = InputsOf(group, {group.size(), 4}, dtype, 3);
      const at::Tensor& own = wholes[group.rank()];
      const at::Tensor output = at::zeros({4}, dtype), from_tensor = at::zeros({4}, dtype);
      const absl::Status status = group.ReduceScatter(output, own.clone().unbind(), op);
      EXPECT_EQ(group.ReduceScatterTensor(from_tensor, own.clone(), op).code(), status.code());
      if (!Done(status, op, dtype)) return;
      const at::Tensor expected = Reduced(wholes, op)[group.rank()];
      EXPECT_TRUE(Same(output, expected)) << Case(op, dtype);
      EXPECT_TRUE(Same(from_tensor, expected)) << Case(op, dtype);
    });
  });
}

TEST_P(BackendConformance, SeveralTensorsAreReducedAsOneCall) {
  ForEachSize([](ProcessGroup& group) {
    ForEachOpAndDtype([&](ReduceOp op, at::ScalarType dtype) {
      std::vector<at::Tensor> tensors;
      const std::vector<std::vector<int64_t>> shapes = {{2, 3}, {}, {0}, {11}};
      for (const auto& shape : shapes) tensors.push_back(InputsOf(group, shape, dtype, 4)[group.rank()].clone());
      if (!Done(group.AllReduceCoalesced(tensors, op), op, dtype)) return;
      for (size_t i = 0; i < shapes.size(); ++i) {
        EXPECT_TRUE(Same(tensors[i], Reduced(InputsOf(group, shapes[i], dtype, 4), op))) << Case(op, dtype);
      }
    });
  });
}

TEST_P(BackendConformance, LargeAndEmptyTensorsAreReduced) {
  OnRanks(3, [](ProcessGroup& group) {
    for (const int64_t size : {0, 1, 1023, 65537, 1500001}) {
      const at::Tensor tensor = at::arange(size, at::kFloat).remainder(100).add(group.rank());
      EXPECT_EQ(group.AllReduce(tensor), absl::OkStatus()) << size;
      EXPECT_TRUE(tensor.equal(at::arange(size, at::kFloat).remainder(100).mul(3).add(3))) << size;
    }
  });
}

TEST_P(BackendConformance, APremulSumMultipliesEachRanksTensorByItsOwnFactor) {
  ForEachSize([](ProcessGroup& group) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t size : {0, 1, 1023, 65537}) {
        const auto shared = group.AllocateShared({size}, dtype);
        ASSERT_EQ(shared.status(), absl::OkStatus());
        const at::Tensor numbers = at::arange(size, dtype).remainder(100), ordinary = numbers.clone();
        shared->copy_(numbers);
        int expected = 0;
        for (int rank = 0; rank < group.size(); ++rank) expected += 1 << rank;
        for (const at::Tensor& tensor : {ordinary, *shared}) {
          EXPECT_EQ(AllReducePremulSum(group, tensor, 1 << group.rank()), absl::OkStatus());
          EXPECT_TRUE(tensor.equal(numbers.mul(expected))) << size;
        }
      }
    }
    EXPECT_EQ(AllReducePremulSum(group, at::ones({2}, at::kLong), 0.5).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group.failure(), absl::OkStatus());
  });
}

TEST_P(BackendConformance, APremulSumRoundsTheProductsBeforeItAddsThem) {
  OnRanks(2, [](ProcessGroup& group) {
    const double factors[] = {1.0 / 3, 0.7};
    std::vector<at::Tensor> inputs;
    for (const int rank : {0, 1}) inputs.push_back(at::arange(40007, at::kFloat).add(1.1 * rank).sin());
    const at::Tensor tensor = inputs[group.rank()].clone();
    ASSERT_EQ(AllReducePremulSum(group, tensor, factors[group.rank()]), absl::OkStatus());
    EXPECT_TRUE(tensor.equal(inputs[0].mul(factors[0]) + inputs[1].mul(factors[1])));
  });
}

TEST_P(BackendConformance, ATreeSumHasTheBitsOfItsTreeWhoeverHasTheLeaves) {
  constexpr int kLeaves = 6;
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < kLeaves; ++i) leaves.push_back(at::arange(10007, at::kFloat).add(1.1 * i).sin());
  const auto sum_of = [&](PartialSum sum) {
    const SumTree tree(kLeaves);
    std::vector<PartialSum> stack;
    std::vector<at::Tensor> sums;
    for (int leaf = sum.begin; leaf < sum.end; ++leaf) {
      sums.push_back(leaves[leaf]);
      for (int adds = tree.Push(stack, {leaf, leaf + 1}); adds > 0; --adds) {
        const at::Tensor right = sums.back();
        sums.pop_back();
        sums.back() = sums.back() + right;
      }
    }
    return sums.at(0);
  };
  const at::Tensor expected = ((leaves[0] + leaves[1]) + (leaves[2] + leaves[3])) + (leaves[4] + leaves[5]);
  ForEachSize([&](ProcessGroup& group) {
    const absl::StatusOr<TreeSum> tree_sum = TreeSum::Create(&group, EvenBounds(kLeaves, group.size()));
    ASSERT_EQ(tree_sum.status(), absl::OkStatus());
    std::vector<at::Tensor> sums;
    for (const PartialSum own : tree_sum->own_sums()) sums.push_back(sum_of(own).clone());
    const at::Tensor output = at::empty_like(expected);
    EXPECT_EQ(tree_sum->Start(output, sums, kLeaves).Wait(), absl::OkStatus());
    EXPECT_TRUE(output.equal(expected.div(kLeaves)));
  });
}

TEST_P(BackendConformance, AllReduceLeavesTheSameBitsOnEveryRank) {
  OnRanks(4, [](ProcessGroup& group) {
    const at::Tensor tensor = at::arange(10007, at::kFloat).add(1.1 * group.rank()).sin();
    ASSERT_EQ(group.AllReduce(tensor), absl::OkStatus());
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back(at::zeros_like(tensor));
    ASSERT_EQ(group.AllGather(all, tensor), absl::OkStatus());
    for (const at::Tensor& other : all) EXPECT_TRUE(other.equal(tensor));
  });
}

TEST_P(BackendConformance, AsynchronousCallsMayBeWaitedForInAnyOrder) {
  OnRanks(2, [](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(at::full({3 + 1000 * i}, 1.0 * (i + group.rank())));
      works.push_back(group.AllReduceAsync(tensors[i], i % 2 ? ReduceOp::kSum : ReduceOp::kMax));
    }
    for (int i = 19; i >= 0; --i) {
      EXPECT_EQ(works[i].Wait(), absl::OkStatus());
      EXPECT_TRUE(works[i].IsCompleted());
      EXPECT_EQ(tensors[i][0].item<double>(), i % 2 ? 2 * i + 1 : i + 1);
    }
  });
}

TEST_P(BackendConformance, AWorkThatNobodyWaitsForIsDoneAllTheSame) {
  OnRanks(2, [](ProcessGroup& group) {
    const at::Tensor tensor = at::full({3}, group.rank() + 1, at::kShort);
    { const Work dropped = group.AllReduceAsync(tensor); }
    EXPECT_EQ(group.Barrier(), absl::OkStatus());
    EXPECT_EQ(group.AllReduce(at::zeros({1})), absl::OkStatus());
    EXPECT_TRUE(tensor.equal(at::full({3}, 3, at::kShort)));
  });
}

}  // namespace
}  // namespace lockstep::comm::testing
