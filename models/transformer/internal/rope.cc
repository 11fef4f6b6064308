#include "lockstep/models/transformer/internal/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

namespace lockstep::models::internal {
namespace {

constexpr double kTwoPi = 2 * 3.14159265358979323846;

// Low frequencies, whose waves are longer than the text of the first training, are divided by the factor, high ones are
// kept, and the ones between are mixed. In Python, a number divided by a tensor is the reciprocal times the number.
at::Tensor Llama3(const at::Tensor& frequencies, const RopeScaling& scaling) {
  const double length = static_cast<double>(scaling.original_max_position_embeddings);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  const at::Tensor waves = frequencies.reciprocal() * kTwoPi;
  const at::Tensor is_low = waves.gt(length / low), is_high = waves.lt(length / high);
  const at::Tensor scaled = at::where(is_low, frequencies / scaling.factor, frequencies);
  const at::Tensor share = (waves.reciprocal() * length - low) / (high - low);
  const at::Tensor mixed = (1 - share) * scaled / scaling.factor + share * scaled;
  return at::where(is_low.logical_or(is_high), scaled, mixed);
}

}  // namespace

at::Tensor InverseFrequencies(const CausalLMConfig& config, at::Device device) {
  const int64_t size = config.head_size();
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor frequencies = at::pow(config.rope_theta, at::arange(0, size, 2, options) / size).reciprocal();
  if (!config.rope_scaling) return frequencies;
  const RopeScaling& scaling = *config.rope_scaling;
  return scaling.rope_type == "llama3" ? Llama3(frequencies, scaling) : frequencies / scaling.factor;
}

}  // namespace lockstep::models::internal
