// Decoder-only transformers: GPT-2, Llama, Qwen2 and Mistral, as Hugging Face's transformers defines them.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_CAUSAL_LM_H_
#define LOCKSTEP_MODELS_TRANSFORMER_CAUSAL_LM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/internal/decoder.h"
#include "lockstep/models/transformer/key_value_cache.h"

namespace lockstep::models {

// A language model. MakeCausalLM() creates one, and LoadPretrained() (pretrained.h) reads one.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const models::CausalLM net, models::MakeCausalLM(config));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get()));
//   models::NextTokenLoss(ddp(batch.data), batch.target).backward();    // of a data::TokenDataset
//
// Parameters have the names, shapes and order of transformers' named_parameters(): transformer.h.0.attn.c_attn.weight,
// which is [in, out], or model.layers.0.self_attn.q_proj.weight, and so on. With a tied head
// the model has no lm_head.weight.
//
// The operators are the ones that a page of Python calls: linear or addmm, layer_norm or rms_norm, and
// scaled_dot_product_attention, each of which PyTorch has a fused form of. Losses and parameters of training are then
// Python's bits. Each of ddp::Wrap(), dp::DataParallel, fsdp::Wrap() (with units {"transformer.h.*"} or
// {"model.layers.*"}), elastic::ShardModel() and ddp::Autocast takes the model.
class CausalLMImpl : public torch::nn::Module {
 public:
  // Throws StatusError with CheckConfig()'s error. `initialize` false: parameters have any values, and no random number
  // is drawn. Otherwise, in the order of named_parameters(), weights of two dimensions are drawn from the default
  // generator's normal distribution with the deviation config.initializer_range, for gpt2's c_proj divided by
  // sqrt(2 * layers). Norms' weights are 1, and biases 0.
  explicit CausalLMImpl(CausalLMConfig config, bool initialize = true);

  // int64 [batch, time] -> logits, [batch, time, vocab_size]. Throws c10::ValueError: `ids` are not int64 of two
  // dimensions, or longer than gpt2's max_position_embeddings. Throws c10::IndexError on the CPU: a token is not in the
  // vocabulary.
  at::Tensor forward(const at::Tensor& ids);

  // Adds tokens, int64 [batch, time], to the ones that `cache` has, and returns the logits for the token behind them,
  // [batch, vocab_size]. Computes no gradients. Call eval() before. Throws as forward() does. `cache` is of this model
  // and has the same batch. Up to rounding the logits are forward()'s.
  at::Tensor Next(const at::Tensor& ids, KVCache* cache);

  // True: the layers are recomputed in backward (Recompute(), models/recompute), so of each its input is kept alone.
  // Results do not change. At first false.
  void set_recompute(bool recompute);

  const CausalLMConfig& config() const { return config_; }

  // A copy that shares no memory, on `device` if it is given. Draws no random numbers.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;

 private:
  at::Tensor Head(const at::Tensor& states) const;
  void CheckIds(const at::Tensor& ids, int64_t past) const;

  const CausalLMConfig config_;
  bool recompute_ = false;
  std::shared_ptr<internal::Decoder> decoder_;
  internal::WeightsPtr lm_head_;  // null: tied
};
TORCH_MODULE(CausalLM);

// Returns CheckConfig()'s errors, or ResourceExhausted.
absl::StatusOr<CausalLM> MakeCausalLM(const CausalLMConfig& config);

// Returns the mean cross entropy of `logits`, [..., vocab_size], for the tokens `targets`, int64 [...]. Targets of -100
// are left out, as data::TokenDataset marks them. Without any other, the result is NaN, as in PyTorch. Computes in float.
at::Tensor NextTokenLoss(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_CAUSAL_LM_H_
