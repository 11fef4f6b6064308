#include "lockstep/examples/gpt/report.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/models/transformer/config.h"

namespace lockstep::examples {
namespace {

constexpr int64_t kEvery = 10, kEvaluated = 64, kBatch = 8;

// The rate of a large matrix product on this rank's threads: the best of several.
double MatrixFlops(bool bf16) {
  constexpr int64_t kSize = 1024;
  const at::Tensor a = at::ones({kSize, kSize}, bf16 ? at::kBFloat16 : at::kFloat);
  absl::Duration best = absl::InfiniteDuration();
  for (const absl::Time end = absl::Now() + absl::Milliseconds(200); absl::Now() < end;) {
    const absl::Time start = absl::Now();
    at::mm(a, a);
    best = std::min(best, absl::Now() - start);
  }
  return 2.0 * kSize * kSize * kSize / absl::ToDoubleSeconds(best);
}

double MachineFlops(int ranks, bool bf16) {
  static const double rank_flops = MatrixFlops(bf16);
  return rank_flops * ranks;
}

// The mean loss of blocks [begin, end).
absl::StatusOr<double> LossOf(models::CausalLMImpl& net, const data::TokenDataset& blocks, int64_t begin, int64_t end) {
  at::Generator unused = at::globalContext().defaultGenerator(at::kCPU);
  std::vector<at::Tensor> inputs, targets;
  for (int64_t i = begin; i < end; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const data::Example block, blocks.Get(i, unused));
    inputs.push_back(block.data);
    targets.push_back(block.target);
  }
  return TorchStatusOr(
      "", [&] { return models::NextTokenLoss(net.forward(at::stack(inputs)), at::stack(targets)).item<double>(); });
}

}  // namespace

Report::Report(comm::ProcessGroup& group, models::CausalLMImpl& net, int64_t step, const Options& options)
    : group_(group),
      options_(options),
      token_flops_(models::FlopsPerToken(net.config(), options.block)),
      machine_flops_(MachineFlops(group.size(), options.bf16)),
      printed_step_(step) {
  Say(group, absl::StrFormat("%s, %.1f million parameters, %d ranks: from step %d of %d", net.config().model_type,
                             static_cast<double>(models::ParameterCount(net.config())) / 1e6, group.size(), step,
                             options.steps));
  printed_ = absl::Now();
}

absl::Status Report::AfterStep(int64_t step, const at::Tensor& losses) {
  if (step % kEvery != 0 && step != options_.steps) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(group_.AllReduce(losses));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - printed_);
  const double tokens = static_cast<double>((step - printed_step_) * options_.batch_tokens) / seconds;
  Say(group_,
      absl::StrFormat("step %5d   loss %7.4f   %7.0f tokens/s   %2.0f %% of the machine's matrix products", step,
                      losses.mean().item<double>(), tokens, 100 * tokens * token_flops_ / machine_flops_));
  printed_step_ = step;
  printed_ = absl::Now();
  return absl::OkStatus();
}

absl::Status Report::Evaluate(int64_t step, models::CausalLMImpl& net, const Text& text) {
  const absl::Time begin = absl::Now();
  const c10::NoGradGuard no_grad;
  net.eval();
  const auto train = absl::MakeCleanup([&net] { net.train(); });
  const int64_t first = text.train_blocks(), blocks = std::min(kEvaluated, text.blocks->size() - first);
  const at::Tensor losses = at::zeros({(blocks - 1) / kBatch + 1}, at::kDouble);  // each computed by one rank
  for (int64_t i = group_.rank(); i < losses.size(0); i += group_.size()) {
    const int64_t at = first + i * kBatch;
    LOCKSTEP_ASSIGN_OR_RETURN(const double loss, LossOf(net, *text.blocks, at, std::min(at + kBatch, first + blocks)));
    losses[i] = loss;
  }
  LOCKSTEP_RETURN_IF_ERROR(group_.AllReduce(losses));
  Say(group_,
      absl::StrFormat("step %5d   loss %7.4f on text that is not trained on", step, losses.mean().item<double>()));
  printed_ += absl::Now() - begin;
  return absl::OkStatus();
}

}  // namespace lockstep::examples
