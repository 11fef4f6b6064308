// A module's buffers in a step: every virtual rank starts from the ones that the step began with, and after the step all
// ranks have virtual rank 0's.

#ifndef LOCKSTEP_FSDP_INTERNAL_BUFFERS_H_
#define LOCKSTEP_FSDP_INTERNAL_BUFFERS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::fsdp::internal {

class Buffers {
 public:
  explicit Buffers(std::vector<at::Tensor> buffers) : buffers_(std::move(buffers)) {}

  // Gives all ranks rank 0's. Every rank must call it.
  absl::Status Broadcast(comm::ProcessGroup& group) const;

  // A virtual rank of this rank begins or ends: the one with number `place` of the `count` that it has in a step.
  void BeginVirtualRank(size_t place, size_t count);
  void EndVirtualRank(size_t place, size_t count);

 private:
  std::vector<at::Tensor> Copies() const;
  void Restore(const std::vector<at::Tensor>& saved) const;

  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> at_begin_, of_first_;  // copies, within a step
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_BUFFERS_H_
