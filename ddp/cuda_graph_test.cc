// Steps in CUDA graphs, with --config=cuda.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/testing/gpu_ranks.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using testing::BatchOnGpu;
using testing::ExpectClose;
using testing::Gradients;
using testing::Mlp;
using testing::OnGpuRanks;
using testing::SeededMlpOnGpu;
using testing::Share;
using testing::Thrown;
using testing::Wrapped;

constexpr int kRows = 8, kWarmUp = 3, kReplays = 4;

// Captures a step on the rank's part of a batch, which is always at the same place.
class Trainer {
 public:
  Trainer(comm::ProcessGroup& group, const Options& options)
      : group_(group),
        ddp_(Wrapped(SeededMlpOnGpu(1), group, options)),
        optimizer_(ddp_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        input_(Share(BatchOnGpu(kRows, 4, 0), group).contiguous()) {}

  void Load(int step) { input_.copy_(Share(BatchOnGpu(kRows, 4, step), group_)); }

  void Step() {
    optimizer_.zero_grad();
    ddp_(input_).pow(2).mean().backward();
    optimizer_.step();
  }

  std::vector<at::Tensor> parameters() const { return ddp_.parameters(); }

 private:
  comm::ProcessGroup& group_;
  DistributedDataParallel<Mlp> ddp_;
  torch::optim::SGD optimizer_;
  at::Tensor input_;
};

// `body` is not run but captured. NCCL's watchdog may ask about earlier work meanwhile, which this mode lets it.
template <typename F>
void Capture(at::cuda::CUDAGraph& graph, const F& body) {
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  body();
  graph.capture_end();
}

// The default stream cannot be captured, and a gradient is accumulated on the stream on which its parameter was
// wrapped.
void OnSideStream(int ranks, const std::function<void(comm::ProcessGroup& group)>& body) {
  OnGpuRanks(ranks, [&](comm::ProcessGroup& group) {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    body(group);
  });
}

void ExpectReplaysEqualSteps(comm::ProcessGroup& group, const Options& options) {
  Trainer captured(group, options), reference(group, options);
  for (int step = 0; step < kWarmUp; ++step) {
    for (Trainer* trainer : {&captured, &reference}) {
      trainer->Load(step);
      trainer->Step();
    }
  }
  at::cuda::CUDAGraph graph;
  Capture(graph, [&] { captured.Step(); });
  for (int step = kWarmUp; step < kWarmUp + kReplays; ++step) {
    SCOPED_TRACE(step);
    captured.Load(step);
    graph.replay();
    reference.Load(step);
    reference.Step();
    ExpectClose(Gradients(captured.parameters()), Gradients(reference.parameters()));
    ExpectClose(captured.parameters(), reference.parameters());
  }
}

void ExpectReplaysEqualSteps(int ranks) {
  OnSideStream(ranks, [](comm::ProcessGroup& group) {
    std::vector<Options> all(4);
    all[1].bucket_cap_mb = 1e-5;  // a bucket a parameter
    all[2].gradient_as_bucket_view = true;
    all[3].static_graph = true;
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("options ", i));
      ExpectReplaysEqualSteps(group, all[i]);
    }
  });
}

TEST(CudaGraph, ReplaysOfAStepEqualSteps) { ExpectReplaysEqualSteps(1); }
TEST(CudaGraph, ReplaysOfAStepEqualStepsOnTwoRanks) { ExpectReplaysEqualSteps(2); }

// Returns the error that `step` throws while it is captured.
template <typename F>
absl::Status ThrownInCapture(const F& step) {
  at::cuda::CUDAGraph graph;
  absl::Status status;
  Capture(graph, [&] { status = Thrown(step); });
  return status;
}

absl::Status Refusal(const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("rank 0: a CUDA graph cannot hold this step: ", why));
}

TEST(CudaGraph, AStepIsRefusedUntilTheBucketsAreLaidOut) {
  OnSideStream(1, [](comm::ProcessGroup& group) {
    Trainer trainer(group, {});
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(ThrownInCapture([&] { trainer.Step(); }),
                Refusal("the second forward lays the buckets out anew; run two steps before the capture"));
      trainer.Step();
    }
    EXPECT_EQ(ThrownInCapture([&] { trainer.Step(); }), absl::OkStatus());
  });
}

TEST(CudaGraph, AStepOfWhichTheHostLearnsSomethingIsRefused) {
  OnSideStream(1, [](comm::ProcessGroup& group) {
    const auto captured = [&](const Options& options) {
      Trainer trainer(group, options);
      for (int step = 0; step < kWarmUp; ++step) trainer.Step();
      return ThrownInCapture([&] { trainer.Step(); });
    };
    Options options;
    options.find_unused_parameters = true;
    EXPECT_EQ(
        captured(options),
        Refusal("with Options::find_unused_parameters the host must learn in each step which parameters are used"));
    options = Options();
    options.non_finite = NonFinite::kReport;
    EXPECT_EQ(captured(options), Refusal("with Options::non_finite the host reads the gradients"));
  });
}

TEST(CudaGraph, ASparseGradientIsRefused) {
  OnSideStream(1, [](comm::ProcessGroup& group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 4).sparse(true));
    net->to(at::kCUDA);
    auto ddp = Wrapped(net, group);
    const at::Tensor rows = at::arange(3, at::device(at::kCUDA).dtype(at::kLong));
    for (int step = 0; step < kWarmUp; ++step) ddp(rows).sum().backward();
    EXPECT_EQ(ThrownInCapture([&] { ddp(rows); }),
              Refusal("the gradient of parameter weight is sparse, and the host counts its rows"));
  });
}

TEST(CudaGraph, AStepUnderJoinIsRefused) {
  OnSideStream(1, [](comm::ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlpOnGpu(1), group);
    const at::Tensor batch = BatchOnGpu(kRows, 4, 0);
    Join join({ddp});
    for (int step = 0; step < kWarmUp; ++step) ddp(batch).sum().backward();
    EXPECT_EQ(ThrownInCapture([&] { ddp(batch); }),
              Refusal("under Join the host must learn which ranks have inputs left"));
    EXPECT_EQ(join.Finish(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace lockstep::ddp
