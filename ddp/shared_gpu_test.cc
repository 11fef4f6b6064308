// Two ranks on one GPU, with --config=cuda.

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/gpu_ranks.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using testing::BatchOnGpu;
using testing::ExpectClose;
using testing::Gradients;
using testing::OnGpuRanks;
using testing::SeededMlpOnGpu;
using testing::Share;
using testing::Wrapped;

constexpr int kRanks = 2;

// Rank 1 begins with other parameters.
void ExpectTrainsAsOneProcess(comm::ProcessGroup& group, const Options& options) {
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  auto reference = SeededMlpOnGpu(0);
  auto ddp = Wrapped(SeededMlpOnGpu(group.rank()), group, options);
  torch::optim::SGD reference_optimizer(reference->parameters(), sgd), optimizer(ddp.parameters(), sgd);
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    const at::Tensor batch = BatchOnGpu(8, 4, step);
    reference_optimizer.zero_grad();
    optimizer.zero_grad();
    reference(batch).pow(2).mean().backward();
    ddp(Share(batch, group)).pow(2).mean().backward();
    ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
    reference_optimizer.step();
    optimizer.step();
  }
  ExpectClose(ddp.parameters(), reference->parameters());
}

TEST(SharedGpu, TwoRanksTrainAsOneProcess) {
  OnGpuRanks(kRanks, [](comm::ProcessGroup& group) { ExpectTrainsAsOneProcess(group, {}); });
}

TEST(SharedGpu, TwoRanksTrainAsOneProcessWithOtherOptions) {
  OnGpuRanks(kRanks, [](comm::ProcessGroup& group) {
    std::vector<Options> all(5);
    all[0].bucket_cap_mb = 1e-5;  // a bucket a parameter
    all[1].gradient_as_bucket_view = true;
    all[2].static_graph = true;
    all[3].find_unused_parameters = true;
    all[4].non_finite = NonFinite::kThrow;
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectTrainsAsOneProcess(group, all[i]);
    }
  });
}

c10::impl::VirtualGuardImpl Gpu() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

// The moment at which the current stream has done what it was told so far.
c10::Event Moment() {
  c10::Event event(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
  event.record(Gpu().getStream(Gpu().getDevice()));
  return event;
}

// Adds to `ends` when each bucket's all_reduce was over on the GPU. That is waited for on a stream of its own: the one
// that computes goes on meanwhile.
CommunicationHook AllReduceNotingEnds(comm::ProcessGroup& group, std::vector<c10::Event>& ends) {
  const c10::Stream aside = Gpu().getStreamFromGlobalPool(Gpu().getDevice());
  return [&group, &ends, aside](GradBucket& bucket) {
    comm::Work work = group.AllReduceAsync(bucket.buffer.div_(group.size()));
    const c10::StreamGuard guard(aside);
    ThrowIfError(work.Wait());
    ends.push_back(Moment());
    return Future([&ends, index = bucket.index, buffer = bucket.buffer]() -> absl::StatusOr<at::Tensor> {
      ends[index].block(Gpu().getStream(buffer.device()));
      return buffer;
    });
  };
}

// Milliseconds of work in backward after the last layer, whose gradients are the first bucket.
torch::nn::Sequential WideNet() {
  constexpr int kLayers = 8, kWidth = 2048;
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  net->push_back(torch::nn::Linear(kWidth, 10));
  net->to(at::kCUDA);
  return net;
}

TEST(SharedGpu, ABucketIsReducedWhileBackwardGoesOn) {
  OnGpuRanks(kRanks, [](comm::ProcessGroup& group) {
    Options options;
    options.bucket_cap_mb_list = {0.05, 25};
    auto ddp = Wrapped(WideNet(), group, options);
    std::vector<c10::Event> ends;
    ASSERT_EQ(ddp.RegisterHook(AllReduceNotingEnds(group, ends)), absl::OkStatus());
    c10::Event last = Moment();  // the last gradient
    ddp.parameters()[0].register_hook([&last](const at::Tensor&) { last = Moment(); });
    const at::Tensor input = at::randn({8192, 2048}, at::kCUDA);
    for (int step = 0; step < 3; ++step) {
      ends.clear();
      ddp.zero_grad();
      ddp(input).mean().backward();
    }
    torch::cuda::synchronize();
    ASSERT_GT(ends.size(), 1);
    EXPECT_GT(ends.front().elapsedTime(last), 0) << "ms from the first all_reduce's end to the last gradient";
  });
}

TEST(SharedGpu, StatisticsHaveTheTimesOfTheGpu) {
  OnGpuRanks(kRanks, [](comm::ProcessGroup& group) {
    Options options;
    options.bucket_cap_mb_list = {0.05, 25};
    auto ddp = Wrapped(WideNet(), group, options);
    const at::Tensor input = at::randn({8192, 2048}, at::kCUDA);
    c10::Event begin = Moment(), end = Moment();
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      begin = Moment();
      ddp(input).mean().backward();
      end = Moment();
    }
    const StepStatistics& step = ddp.statistics().back();
    end.synchronize();
    const double milliseconds = begin.elapsedTime(end);
    EXPECT_NEAR(static_cast<double>(step.end) / 1e6, milliseconds, 0.05 * milliseconds);
    EXPECT_LT(step.buckets.front().end, step.last_gradient);
    EXPECT_GT(step.HiddenShare(), 0);
  });
}

}  // namespace
}  // namespace lockstep::ddp
