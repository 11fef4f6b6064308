#ifndef LOCKSTEP_DDP_INTERNAL_REPLICA_H_
#define LOCKSTEP_DDP_INTERNAL_REPLICA_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/internal/reducer.h"
#include "lockstep/ddp/options.h"

namespace lockstep::ddp::internal {

// This rank's copy of the model: all of DistributedDataParallel that does not depend on the module's type.
class Replica {
 public:
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const torch::nn::Module& module, comm::ProcessGroup* group,
                                                         const Options& options);

  // What precedes each forward: buffers from rank 0, and the reducer made ready if gradients are on. Throws
  // StatusError.
  void BeforeForward();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const Reducer& reducer() const { return *reducer_; }

 private:
  Replica(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options);
  absl::Status Synchronize();

  comm::ProcessGroup* const group_;
  const Options options_;
  std::vector<NamedTensor> named_parameters_;  // a tied weight once, under its first name
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REPLICA_H_
