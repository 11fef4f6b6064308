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

  // Returns the place of such a tensor in the memory, which is the same on all ranks, and a byte tensor at a place. The
  // latter does not keep its place allocated. Throws c10::Error if there is no such place.
  virtual int64_t PlaceOf(const at::Tensor& tensor) const = 0;
  virtual at::Tensor AtPlace(int64_t place, int64_t bytes) const = 0;

  // All tensors are in that memory, of one size and floating-point or complex dtype; with order->slices, `output` is
  // anywhere, and has the size of this rank's slice. A collective.
  virtual c10::intrusive_ptr<c10d::Work> TreeSum(const at::Tensor& output, const std::vector<at::Tensor>& sums,
                                                 std::shared_ptr<const TreeSumOrder> order) = 0;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_
