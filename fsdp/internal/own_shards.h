// The shards that a rank owns, with their gradients.

#ifndef LOCKSTEP_FSDP_INTERNAL_OWN_SHARDS_H_
#define LOCKSTEP_FSDP_INTERNAL_OWN_SHARDS_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/fsdp/internal/shard_reducer.h"
#include "lockstep/fsdp/internal/unit_plan.h"

namespace lockstep::fsdp::internal {

class OwnShards {
 public:
  // `shard`: the tensor that an optimizer steps, without a gradient. It is a piece of the unit with this index, and of
  // the parameter of this name.
  void Add(const at::Tensor& shard, const std::string& name, size_t unit, const Piece& piece);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<std::string>& names() const { return names_; }

  // InvalidArgument if the optimizer has another parameter.
  absl::Status CheckParametersOf(const torch::optim::Optimizer& optimizer) const;

  // After a backward. Until SetGradients() or ResetGradients(), each gradient is a tensor without values: an operator that
  // takes it throws StatusError, which `who` begins. So an optimizer that is stepped directly does not pass over the
  // shards in silence. Does nothing to shards that have gradients.
  void PromiseGradients(const std::string& who);
  // After reducer.Wait(). A shard's gradient is undefined if no rank had one.
  void SetGradients(const ShardReducer& reducer);
  void ResetGradients();

 private:
  struct Place {
    size_t unit;
    Piece piece;
  };

  std::vector<at::Tensor> tensors_;
  std::vector<std::string> names_;
  std::vector<Place> places_;
  std::vector<at::Tensor> promises_;  // empty until there was one
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_OWN_SHARDS_H_
