// Brings parameters and tensors of an optimizer's state, of which each rank has a part, to rank 0, one at a time.

#ifndef LOCKSTEP_FSDP_INTERNAL_STATE_GATHERER_H_
#define LOCKSTEP_FSDP_INTERNAL_STATE_GATHERER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/internal/sharded_parameters.h"
#include "lockstep/fsdp/internal/whole_optimizer.h"

namespace lockstep::fsdp::internal {

// Rank 0 says which tensor it wants, and the others send their parts of it. So rank 0 alone knows the order, and may
// stop at any time.
class StateGatherer {
 public:
  // The arguments must outlive it.
  StateGatherer(const std::vector<ShardedParameter>& parameters, const WholeOptimizer& optimizer,
                comm::ProcessGroup* group);

  // On rank 0: the elements of optimizer.states[parameter][item], a tensor, in the order of the parameter's memory.
  absl::StatusOr<at::Tensor> Bring(size_t parameter, size_t item) const;
  // On rank 0: the parameter's own elements, in the same order.
  absl::StatusOr<at::Tensor> BringParameter(size_t parameter) const;
  // On rank 0, after the last Bring(): ends Serve() on the others.
  absl::Status End() const;
  // On other ranks: sends what rank 0 wants until End().
  absl::Status Serve() const;

 private:
  absl::Status Exchange(int64_t parameter, int64_t item) const;
  absl::StatusOr<at::Tensor> Collect(size_t parameter, int64_t item, at::ScalarType dtype) const;
  at::Tensor OwnPart(size_t parameter, int64_t item) const;

  const std::vector<ShardedParameter>& parameters_;
  const WholeOptimizer& optimizer_;
  comm::ProcessGroup* const group_;
  const at::Tensor wanted_;  // a parameter, or -1; and an item, or -1 for the parameter itself
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_STATE_GATHERER_H_
