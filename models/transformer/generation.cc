#include "lockstep/models/transformer/generation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::models {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

at::Tensor KeepTopK(const at::Tensor& logits, int64_t k) {
  const at::Tensor top = std::get<0>(at::topk(logits, std::min(k, logits.size(-1))));
  return logits.masked_fill(logits.lt(top[-1]), kNever);
}

// A token is left out if the more probable ones reach `p` without it.
at::Tensor KeepTopP(const at::Tensor& logits, double p) {
  const auto [sorted, order] = at::sort(logits, /*dim=*/-1, /*descending=*/true);
  const at::Tensor probabilities = sorted.softmax(-1);
  const at::Tensor before = at::cumsum(probabilities, -1) - probabilities;
  at::Tensor left_out = before.ge(p);
  left_out[0] = false;
  return logits.masked_fill(left_out.scatter(0, order, left_out), kNever);
}

absl::Status Check(absl::string_view name, double found, bool right, absl::string_view expected) {
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", found, ", expected ", expected));
}

absl::Status CheckPrompt(const std::vector<int64_t>& prompt, int64_t vocab_size) {
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt is empty, expected at least one token");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("token ", i, " of the prompt is ", prompt[i], ", expected 0 to vocab_size - 1, ", vocab_size - 1));
  }
  return absl::OkStatus();
}

// The logits that follow `text`, of which `cache` has seen all but the last tokens.
at::Tensor NextLogits(CausalLM& net, const std::vector<int64_t>& text, int64_t unseen, KVCache& cache) {
  const int64_t most = net->config().max_position_embeddings;
  if (cache.length() + unseen > most) {
    cache = KVCache();
    unseen = std::min<int64_t>(text.size(), std::max<int64_t>(1, most / 2));
  }
  const std::vector<int64_t> tokens(text.end() - unseen, text.end());
  const at::Tensor ids = at::tensor(tokens, at::kLong).unsqueeze(0).to(net->parameters()[0].device());
  return net->Next(ids, &cache)[0].to(at::kCPU, at::kFloat);
}

std::vector<int64_t> Continue(CausalLM& net, std::vector<int64_t> text, const SamplingOptions& options,
                              const std::function<void(int64_t)>& on_token) {
  const at::NoGradGuard no_grad;
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  KVCache cache;
  std::vector<int64_t> added;
  int64_t unseen = text.size();
  while (static_cast<int64_t>(added.size()) < options.max_new_tokens) {
    const int64_t token = SampleToken(NextLogits(net, text, unseen, cache), options, random);
    text.push_back(token);
    added.push_back(token);
    unseen = 1;
    if (on_token) on_token(token);
    if (token == options.stop) break;
  }
  return added;
}

}  // namespace

absl::Status CheckSampling(const SamplingOptions& options) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const double temperature = options.temperature, top_p = options.top_p;
  LOCKSTEP_RETURN_IF_ERROR(
      Check("temperature", temperature, temperature >= 0 && temperature <= kMost, "at least 0, and finite"));
  LOCKSTEP_RETURN_IF_ERROR(Check("top_k", options.top_k, options.top_k >= 0, "at least 0"));
  LOCKSTEP_RETURN_IF_ERROR(Check("top_p", top_p, top_p > 0 && top_p <= 1, "more than 0 and at most 1"));
  return Check("max_new_tokens", options.max_new_tokens, options.max_new_tokens >= 0, "at least 0");
}

int64_t SampleToken(const at::Tensor& logits, const SamplingOptions& options, at::Generator& random) {
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  at::Tensor kept = logits / options.temperature;
  if (options.top_k > 0) kept = KeepTopK(kept, options.top_k);
  if (options.top_p < 1) kept = KeepTopP(kept, options.top_p);
  return at::multinomial(kept.softmax(-1), 1, /*replacement=*/false, random).item<int64_t>();
}

absl::StatusOr<std::vector<int64_t>> Generate(CausalLM& net, std::vector<int64_t> prompt,
                                              const SamplingOptions& options,
                                              const std::function<void(int64_t)>& on_token) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSampling(options));
  LOCKSTEP_RETURN_IF_ERROR(CheckPrompt(prompt, net->config().vocab_size));
  const bool was_training = net->is_training();
  const auto restore = absl::MakeCleanup([&] { net->train(was_training); });
  net->eval();
  return TorchStatusOr("generation", [&] { return Continue(net, std::move(prompt), options, on_token); });
}

}  // namespace lockstep::models
