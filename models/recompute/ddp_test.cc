// Recomputed layers under DistributedDataParallel. The reference is the same training without Recompute(). Ranks are
// processes, as each needs a default generator of its own for dropout.

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/gradient_allocator.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/models/recompute/testing/same_bits.h"
#include "lockstep/models/recompute/testing/transformer.h"

namespace lockstep::models {
namespace {

using comm::ProcessGroup;
using comm::testing::Process;
using comm::testing::RankProcesses;
using testing::Transformer;
using Tensors = std::vector<at::Tensor>;

constexpr int kWidth = 128;  // DDP's gradient allocator serves gradients from 64 KiB on

struct Case {
  ddp::Options options;
  bool autocast = false;
  bool always_extra = true;
  int parts = 1;  // backward passes of a step
};

std::map<std::string, Case> Cases() {
  std::map<std::string, Case> cases;
  cases["default"] = Case();
  cases["small buckets"].options.bucket_cap_mb = 0.01;
  cases["unused parameters"].options.find_unused_parameters = true;
  cases["unused parameters"].always_extra = false;
  cases["static graph"].options.static_graph = true;
  cases["bucket views"].options.gradient_as_bucket_view = true;
  cases["static graph with bucket views"] = cases["static graph"];
  cases["static graph with bucket views"].options.gradient_as_bucket_view = true;
  cases["accumulation"].parts = 3;
  cases["accumulation in views"] = cases["bucket views"];
  cases["accumulation in views"].parts = 3;
  cases["autocast"].autocast = true;
  cases["virtual ranks"].options.virtual_ranks = 5;
  cases["virtual ranks in views"] = cases["virtual ranks"];
  cases["virtual ranks in views"].options.gradient_as_bucket_view = true;
  cases["virtual ranks with autocast"] = cases["virtual ranks"];
  cases["virtual ranks with autocast"].autocast = true;
  cases["mixed precision"].options.mixed_precision.emplace();
  cases["mixed precision"].options.mixed_precision->param_dtype = at::kBFloat16;
  cases["mixed precision"].options.mixed_precision->buffer_dtype = at::kBFloat16;
  return cases;
}

at::Tensor Loss(ddp::DistributedDataParallel<Transformer>& ddp, const Case& c, int step, int virtual_rank, int part) {
  std::optional<ddp::Autocast> autocast;
  if (c.autocast) autocast.emplace(at::kCPU, at::kBFloat16);
  const double shift = 1.3 * step + 2.7 * virtual_rank + 0.9 * part;
  const at::Tensor x = at::arange(6 * 4 * kWidth).add(shift).mul(12.9898).sin().view({6, 4, kWidth});
  return ddp(x, /*with_extra=*/c.always_extra || (step + virtual_rank) % 2 == 0).to(at::kFloat).square().sum();
}

// Losses, parameters, their gradients, and buffers.
Tensors Train(ProcessGroup& group, const Case& c, bool recompute) {
  at::manual_seed(3);
  auto ddp = ddp::Wrap(Transformer(3, kWidth, 4, 2 * kWidth, recompute), &group, c.options);
  ThrowIfError(ddp.status());
  at::manual_seed(17 + group.rank());
  torch::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.001).momentum(0.9));
  Tensors all;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    for (const int virtual_rank : ddp->VirtualRanks(step)) {
      for (int part = 0; part < c.parts; ++part) {
        std::optional<ddp::NoSync> no_sync;
        if (part + 1 < c.parts) no_sync.emplace(*ddp);
        all.push_back(Loss(*ddp, c, step, virtual_rank, part));
        all.back().backward();
      }
    }
    for (const at::Tensor& parameter : ddp->parameters()) all.push_back(parameter.grad().clone());
    optimizer.step();
  }
  for (const at::Tensor& parameter : ddp->parameters()) all.push_back(parameter);
  for (const at::Tensor& buffer : ddp->module()->buffers()) all.push_back(buffer);
  return all;
}

// Says "same", or the first difference.
int Compare(const comm::InitOptions& init, const Case& c, const Process::Say& say) {
  const absl::Status status = TorchStatus("", [&] {
    const auto group = comm::InitProcessGroup(init);
    ThrowIfError(group.status());
    const Tensors expected = Train(**group, c, /*recompute=*/false);
    const Tensors found = Train(**group, c, /*recompute=*/true);
    const int difference = testing::FirstDifference(found, expected);
    say(difference < 0 ? "same" : absl::StrCat("tensor ", difference, " of ", expected.size(), " differs"));
    ThrowIfError((*group)->Barrier());
  });
  if (!status.ok()) say(status.ToString());
  return 0;
}

void ExpectSame(const std::string& name, const Case& c, bool allocator = false) {
  comm::InitOptions options;
  options.timeout = absl::Seconds(60);
  RankProcesses ranks(2, options, [&](const comm::InitOptions& init, const Process::Say& say) {
    if (allocator) ddp::InstallGradientAllocator();
    return Compare(init, c, say);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::optional<Process::Line> line = ranks[rank].AwaitLine("", absl::Seconds(120));
    EXPECT_EQ(line ? line->text : "nothing", "same") << name << ", rank " << rank;
  }
}

TEST(RecomputeUnderDdp, GivesTheSameBitsWithEveryOption) {
  for (const auto& [name, c] : Cases()) ExpectSame(name, c);
}

TEST(RecomputeUnderDdp, GivesTheSameBitsWithTheGradientAllocator) {
  for (const char* name : {"default", "bucket views", "virtual ranks"})
    ExpectSame(name, Cases()[name], /*allocator=*/true);
}

}  // namespace
}  // namespace lockstep::models
