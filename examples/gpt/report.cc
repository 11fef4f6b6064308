#include "lockstep/examples/gpt/report.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/matrix_flops.h"

namespace lockstep::examples {

Report::Report(comm::ProcessGroup& group, models::CausalLMImpl& net, at::ScalarType dtype, int64_t step, int64_t steps,
               int64_t batch, int64_t block)
    : group_(group),
      steps_(steps),
      step_tokens_(batch * block),
      dtype_(dtype),
      token_share_(models::FlopsPerToken(net.config(), block) / (models::MatrixFlops(dtype) * group.size())),
      printed_step_(step),
      printed_(absl::Now()) {
  Say(group,
      absl::StrFormat("%s, %.1f million parameters, %d ranks: from step %d of %d", net.config().model_type,
                      static_cast<double>(models::ParameterCount(net.config())) / 1e6, group.size(), step, steps));
}

absl::Status Report::AfterStep(int64_t step, const at::Tensor& losses) {
  if (step % 10 != 0 && step != steps_) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(group_.AllReduce(losses));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - printed_);
  const double tokens = static_cast<double>((step - printed_step_) * step_tokens_) / seconds;
  Say(group_, absl::StrFormat("step %5d   loss %7.4f   %7.0f tokens/s   %2.0f %% of the machine's %s products", step,
                              losses.mean().item<double>(), tokens, 100 * tokens * token_share_,
                              dtype_ == at::kFloat ? "float" : "bfloat16"));
  printed_step_ = step;
  printed_ = absl::Now();
  return absl::OkStatus();
}

absl::Status Report::Evaluate(int64_t step, models::CausalLMImpl& net,
                              const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                              const data::Dataset& blocks, int64_t first) {
  const absl::Time begin = absl::Now();
  const c10::NoGradGuard no_grad;
  net.eval();
  const auto train = absl::MakeCleanup([&net] { net.train(); });
  at::Generator unused = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor losses = at::zeros({std::min<int64_t>(64, blocks.size() - first)}, at::kDouble);
  const int64_t number = losses.size(0);
  for (int64_t i = group_.rank(); i - group_.rank() < number; i += group_.size()) {
    // Sharded, all ranks compute equally often. The last ones may have nothing of their own left.
    LOCKSTEP_ASSIGN_OR_RETURN(const data::Example block, blocks.Get(first + std::min(i, number - 1), unused));
    at::Tensor loss;
    LOCKSTEP_RETURN_IF_ERROR(
        TorchStatus("", [&] { loss = models::NextTokenLoss(forward(block.data.unsqueeze(0)), block.target); }));
    if (i < number) losses[i] = loss;
  }
  LOCKSTEP_RETURN_IF_ERROR(group_.AllReduce(losses));
  Say(group_,
      absl::StrFormat("step %5d   loss %7.4f on text that is not trained on", step, losses.mean().item<double>()));
  printed_ += absl::Now() - begin;
  return absl::OkStatus();
}

}  // namespace lockstep::examples
