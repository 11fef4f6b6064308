// A module whose parameters are divided into pieces, and that outlives the groups that train it.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_KEPT_MODEL_H_
#define LOCKSTEP_ELASTIC_INTERNAL_KEPT_MODEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/fsdp/internal/kept_shards.h"

namespace lockstep::elastic::internal {

class KeptModel {
 public:
  // Cuts each parameter that requires gradients into pieces of `piece_elements` elements and a rest. Before the module is
  // wrapped, the pieces are views of the parameters. `module` is borrowed. InvalidArgument: `piece_elements` is not
  // a multiple of 16, or a parameter is not dense or shares its memory with another one.
  static absl::StatusOr<std::unique_ptr<KeptModel>> Create(torch::nn::Module& module, int64_t piece_elements);

  fsdp::internal::KeptShards* shards() { return &shards_; }
  const std::vector<at::Tensor>& pieces() const { return pieces_; }
  const std::vector<std::string>& piece_names() const { return piece_names_; }

  // The module's state without the pieces: buffers, frozen parameters, and the shapes of the others. At the start of
  // the job (`has_all`) it has all parameters.
  checkpoint::Value Save(bool has_all) const;
  // InvalidArgument, naming the thing: the module has others, or other shapes.
  absl::Status Load(const checkpoint::Value& state);

  std::vector<at::Tensor> buffers() const;

  // On every rank: gives the parameters of one that has all pieces their values. If the module is wrapped, they are whole
  // until the next forward or step, and else in new memory.
  void Assemble(bool has_all);

 private:
  explicit KeptModel(torch::nn::Module& module) : module_(module) {}

  torch::nn::Module& module_;
  fsdp::internal::KeptShards shards_;
  std::vector<at::Tensor> pieces_;        // of `shards_`
  std::vector<std::string> piece_names_;  // of their parameters
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_KEPT_MODEL_H_
