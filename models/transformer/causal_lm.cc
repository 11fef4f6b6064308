#include "lockstep/models/transformer/causal_lm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>

#include <utility>

#include "lockstep/base/torch_status.h"
#include "lockstep/models/transformer/internal/gpt2.h"
#include "lockstep/models/transformer/internal/llama.h"

namespace lockstep::models {

CausalLMImpl::CausalLMImpl(CausalLMConfig config, bool initialize) : config_(std::move(config)) {
  ThrowIfError(CheckConfig(config_));
  decoder_ = config_.is_gpt2() ? register_module("transformer", internal::MakeGpt2(config_))
                               : register_module("model", internal::MakeLlama(config_));
  if (!config_.tie_word_embeddings) {
    lm_head_ = register_module(
        "lm_head", std::make_shared<internal::Weights>(decoder_->embedding().sizes(), 0, config_.initializer_range));
  }
  if (!initialize) return;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* weights = module->as<internal::Weights>()) weights->Initialize();
  }
}

at::Tensor CausalLMImpl::forward(const at::Tensor& ids) {
  CheckIds(ids, /*past=*/0);
  return Head(decoder_->forward(ids, nullptr));
}

at::Tensor CausalLMImpl::Next(const at::Tensor& ids, KVCache* cache) {
  const at::NoGradGuard no_grad;
  CheckIds(ids, cache->length());
  return Head(decoder_->forward(ids, cache).select(1, -1));
}

void CausalLMImpl::set_recompute(bool recompute) {
  recompute_ = recompute;
  decoder_->set_recompute(recompute);
}

std::shared_ptr<torch::nn::Module> CausalLMImpl::clone(const std::optional<at::Device>& device) const {
  const at::NoGradGuard no_grad;
  auto copy = std::make_shared<CausalLMImpl>(config_, /*initialize=*/false);
  const auto parameters = named_parameters();
  for (auto& item : copy->named_parameters()) {
    const at::Tensor& from = parameters[item.key()];
    item.value().set_data(device && from.device() != *device ? from.to(*device) : from.clone());
    item.value().set_requires_grad(from.requires_grad());
  }
  copy->train(is_training());
  copy->set_recompute(recompute_);
  return copy;
}

at::Tensor CausalLMImpl::Head(const at::Tensor& states) const {
  return at::linear(states, lm_head_ ? lm_head_->weight : decoder_->embedding());
}

void CausalLMImpl::CheckIds(const at::Tensor& ids, int64_t past) const {
  TORCH_CHECK_VALUE(ids.dim() == 2 && ids.scalar_type() == at::kLong && ids.numel() > 0,
                    "tokens: expected int64 [batch, time], found ", c10::toString(ids.scalar_type()), " ", ids.sizes());
  const int64_t end = past + ids.size(1), most = config_.max_position_embeddings;
  TORCH_CHECK_VALUE(!config_.is_gpt2() || end <= most, "tokens: expected at most max_position_embeddings, ", most,
                    ", found ", end);
}

absl::StatusOr<CausalLM> MakeCausalLM(const CausalLMConfig& config) {
  return TorchStatusOr("", [&] { return CausalLM(config); });
}

at::Tensor NextTokenLoss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, -2).to(at::kFloat), targets.flatten());
}

}  // namespace lockstep::models
