#ifndef LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_
#define LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "lockstep/comm/tree_sum/sum_tree.h"

namespace lockstep::comm::internal {

// A c10d::Backend that is also one of these sums partial sums in memory that the ranks share (comm/tree_sum).
class TreeSumBackend {
 public:
  virtual ~TreeSumBackend() = default;

  // Returns whether the tensor is in memory from allocateTensor().
  virtual bool InSharedMemory(const at::Tensor& tensor) const = 0;

  // All tensors are in that memory, of one size and floating-point or complex dtype. A collective.
  virtual c10::intrusive_ptr<c10d::Work> TreeSum(const at::Tensor& output, const std::vector<at::Tensor>& sums,
                                                 std::shared_ptr<const TreeSumOrder> order) = 0;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_
