#ifndef LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_
#define LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
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

// How the leaves of a node are added up, first on each host. The same on every rank.
struct HostSums {
  std::shared_ptr<const std::vector<std::vector<HostSum>>> of_hosts;  // of each host
  std::shared_ptr<const std::vector<int64_t>> bounds;  // rank r gets the elements [bounds[r], bounds[r + 1])
};

// A c10d::Backend that is also one of these adds up leaves on each of several hosts, in memory that the ranks of the
// host share, and sends only the hosts' sums to other hosts.
class HostSumBackend {
 public:
  virtual ~HostSumBackend() = default;

  // Returns the ranks of each host, ascending. Empty if the backend cannot do it for this group. The same on every rank.
  virtual const std::vector<std::vector<int>>& hosts() const = 0;

  // `received` becomes this rank's elements of all sums, one after the other, host by host. `leaf` is in memory from
  // allocateTensor(), and of floating-point or complex dtype. A rank that has no leaf of the node passes such a tensor,
  // too. A collective.
  virtual c10::intrusive_ptr<c10d::Work> SumOnHosts(const at::Tensor& received, const at::Tensor& leaf,
                                                    std::shared_ptr<const HostSums> sums) = 0;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_TREE_SUM_BACKEND_H_
