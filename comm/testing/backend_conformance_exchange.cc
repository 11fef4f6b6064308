// The part of the suite about collectives that move tensors.

#include <ATen/ATen.h>

#include <atomic>

#include "gmock/gmock.h"
#include "lockstep/comm/testing/backend_conformance.h"
#include "lockstep/comm/testing/reference.h"

namespace lockstep::comm::testing {
namespace {

at::Tensor InputOf(const ProcessGroup& group, int rank, at::IntArrayRef shape, at::ScalarType dtype) {
  return Input(rank, group.size(), shape, dtype, /*seed=*/7);
}

std::vector<at::Tensor> Empty(const ProcessGroup& group, at::IntArrayRef shape, at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < group.size(); ++rank) tensors.push_back(at::empty(shape, dtype));
  return tensors;
}

void ForEachDtype(const std::function<void(at::ScalarType dtype)>& body) {
  for (const at::ScalarType dtype : AllDtypes()) body(dtype);
}

TEST_P(BackendConformance, BroadcastGivesRootsTensorOfEveryDtype) {
  ForEachSize([](ProcessGroup& group) {
    ForEachDtype([&](at::ScalarType dtype) {
      for (int root = 0; root < group.size(); ++root) {
        const at::Tensor tensor = InputOf(group, group.rank(), {2, 3}, dtype).clone();
        EXPECT_EQ(group.Broadcast(tensor, root), absl::OkStatus());
        EXPECT_TRUE(Same(tensor, InputOf(group, root, {2, 3}, dtype))) << c10::toString(dtype);
      }
    });
  });
}

TEST_P(BackendConformance, AllGatherCollectsEveryDtype) {
  ForEachSize([](ProcessGroup& group) {
    ForEachDtype([&](at::ScalarType dtype) {
      const std::vector<at::Tensor> outputs = Empty(group, {3}, dtype);
      const at::Tensor whole = at::empty({group.size(), 3}, dtype);
      const at::Tensor input = InputOf(group, group.rank(), {3}, dtype);
      EXPECT_EQ(group.AllGather(outputs, input), absl::OkStatus());
      EXPECT_EQ(group.AllGatherIntoTensor(whole, input), absl::OkStatus());
      for (int rank = 0; rank < group.size(); ++rank) {
        EXPECT_TRUE(Same(outputs[rank], InputOf(group, rank, {3}, dtype))) << c10::toString(dtype);
        EXPECT_TRUE(Same(whole[rank], InputOf(group, rank, {3}, dtype))) << c10::toString(dtype);
      }
    });
  });
}

TEST_P(BackendConformance, GatherAndScatterUseRoot) {
  ForEachSize([](ProcessGroup& group) {
    ForEachDtype([&](at::ScalarType dtype) {
      const int root = static_cast<int>(dtype) % group.size();
      const bool is_root = group.rank() == root;
      const auto outputs = is_root ? Empty(group, {4}, dtype) : std::vector<at::Tensor>();
      EXPECT_EQ(group.Gather(outputs, InputOf(group, group.rank(), {4}, dtype), root), absl::OkStatus());
      for (size_t rank = 0; rank < outputs.size(); ++rank) {
        EXPECT_TRUE(Same(outputs[rank], InputOf(group, rank, {4}, dtype))) << c10::toString(dtype);
      }
      const at::Tensor part = at::empty({4}, dtype);
      EXPECT_EQ(group.Scatter(part, outputs, root), absl::OkStatus());
      EXPECT_TRUE(Same(part, InputOf(group, group.rank(), {4}, dtype))) << c10::toString(dtype);
    });
  });
}

// Rank a sends 1 + (a + b) % 3 rows to rank b, all equal to 10 a + b.
int64_t Rows(int from, int to) { return 1 + (from + to) % 3; }

at::Tensor Message(int from, int to, at::ScalarType dtype) {
  return at::full({Rows(from, to), 2}, 10 * from + to, at::kLong).to(dtype);
}

TEST_P(BackendConformance, AllToAllExchangesListsOfAnyShapes) {
  ForEachSize([](ProcessGroup& group) {
    ForEachDtype([&](at::ScalarType dtype) {
      std::vector<at::Tensor> inputs, outputs;
      for (int other = 0; other < group.size(); ++other) {
        inputs.push_back(Message(group.rank(), other, dtype));
        outputs.push_back(at::empty({Rows(other, group.rank()), 2}, dtype));
      }
      EXPECT_EQ(group.AllToAll(outputs, inputs), absl::OkStatus());
      for (int other = 0; other < group.size(); ++other) {
        EXPECT_TRUE(Same(outputs[other], Message(other, group.rank(), dtype))) << c10::toString(dtype);
      }
    });
  });
}

TEST_P(BackendConformance, AllToAllSingleCutsRowsByTheSplits) {
  ForEachSize([](ProcessGroup& group) {
    ForEachDtype([&](at::ScalarType dtype) {
      std::vector<at::Tensor> sent, expected;
      std::vector<int64_t> input_splits, output_splits;
      for (int other = 0; other < group.size(); ++other) {
        sent.push_back(Message(group.rank(), other, dtype));
        expected.push_back(Message(other, group.rank(), dtype));
        input_splits.push_back(Rows(group.rank(), other));
        output_splits.push_back(Rows(other, group.rank()));
      }
      const at::Tensor output = at::empty_like(at::cat(expected));
      EXPECT_EQ(group.AllToAllSingle(output, at::cat(sent), output_splits, input_splits), absl::OkStatus());
      EXPECT_TRUE(Same(output, at::cat(expected))) << c10::toString(dtype);
    });
  });
}

TEST_P(BackendConformance, AllToAllSingleCutsEquallyWithoutSplitsAndAllowsEmptyOnes) {
  ForEachSize([](ProcessGroup& group) {
    const int n = group.size();
    const at::Tensor input = at::arange(2 * n).add(100 * group.rank());
    const at::Tensor output = at::empty_like(input);
    EXPECT_EQ(group.AllToAllSingle(output, input), absl::OkStatus());
    for (int other = 0; other < n; ++other) {
      EXPECT_TRUE(output.slice(0, 2 * other, 2 * other + 2)
                      .equal(at::arange(2 * group.rank(), 2 * group.rank() + 2).add(100 * other)));
    }
    // All rows go to rank 0.
    std::vector<int64_t> to_first(n, 0), from_all(n, group.rank() == 0 ? 2 : 0);
    to_first[0] = 2;
    const at::Tensor rows = at::empty({group.rank() == 0 ? 2 * n : 0, 3}, at::kFloat);
    EXPECT_EQ(group.AllToAllSingle(rows, at::full({2, 3}, 1.0f * group.rank()), from_all, to_first), absl::OkStatus());
    if (group.rank() > 0) return;
    EXPECT_EQ(rows.select(1, 0)[2 * n - 1].item<float>(), n - 1);
  });
}

TEST_P(BackendConformance, EmptyTensorsAreMoved) {
  OnRanks(2, [](ProcessGroup& group) {
    const at::Tensor empty = at::empty({0, 3}, at::kFloat);
    const std::vector<at::Tensor> pair = {empty.clone(), empty.clone()};
    const bool is_root = group.rank() == 0;
    EXPECT_EQ(group.Broadcast(empty, 1), absl::OkStatus());
    EXPECT_EQ(group.AllGather(pair, empty), absl::OkStatus());
    EXPECT_EQ(group.AllGatherIntoTensor(at::empty({0, 3}), empty), absl::OkStatus());
    EXPECT_EQ(group.Gather(is_root ? pair : std::vector<at::Tensor>(), empty, 0), absl::OkStatus());
    EXPECT_EQ(group.Scatter(empty, is_root ? pair : std::vector<at::Tensor>(), 0), absl::OkStatus());
    EXPECT_EQ(group.AllToAll(pair, {empty, empty}), absl::OkStatus());
    EXPECT_EQ(group.AllToAllSingle(at::empty({0, 3}), empty), absl::OkStatus());
    EXPECT_EQ(group.Reduce(empty, 0), absl::OkStatus());
    EXPECT_EQ(group.ReduceScatter(empty, pair), absl::OkStatus());
  });
}

TEST_P(BackendConformance, ByteStringsOfAnyLengthAreBroadcastAndGathered) {
  ForEachSize([](ProcessGroup& group) {
    const int last = group.size() - 1;
    for (const size_t length : {size_t{0}, size_t{5}, size_t{100000}}) {
      std::string bytes = group.rank() == last ? std::string(length, '\xfe') : "before";
      EXPECT_EQ(group.BroadcastBytes(bytes, last), absl::OkStatus());
      EXPECT_EQ(bytes, std::string(length, '\xfe'));
    }
    const auto all = group.AllGatherBytes(std::string(3 * group.rank(), 'x'));
    ASSERT_TRUE(all.ok()) << all.status();
    for (int rank = 0; rank < group.size(); ++rank) EXPECT_EQ((*all)[rank], std::string(3 * rank, 'x'));
  });
}

TEST_P(BackendConformance, SharedTensorsAreReducedLikeOthers) {
  ForEachSize([](ProcessGroup& group) {
    const auto tensor = group.AllocateShared({100, 7}, at::kBFloat16);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->sizes(), at::IntArrayRef({100, 7}));
    EXPECT_EQ(tensor->scalar_type(), at::kBFloat16);
    tensor->fill_(group.rank() + 1);
    EXPECT_EQ(group.AllReduce(*tensor), absl::OkStatus());
    EXPECT_TRUE(tensor->eq(group.size() * (group.size() + 1) / 2).all().item<bool>());
  });
}

TEST_P(BackendConformance, BarriersReturnOnceEveryRankHasCome) {
  std::atomic<int> arrived{0};
  OnRanks(3, [&](ProcessGroup& group) {
    for (int i = 1; i <= 3; ++i) {
      ++arrived;
      EXPECT_EQ(i == 3 ? group.MonitoredBarrier(absl::Seconds(30)) : group.Barrier(), absl::OkStatus());
      EXPECT_GE(arrived.load(), 3 * i);
    }
  });
}

}  // namespace
}  // namespace lockstep::comm::testing
