// Contiguous stand-ins for tensors with other strides, which backends do not see.

#ifndef LOCKSTEP_COMM_INTERNAL_LAYOUTS_H_
#define LOCKSTEP_COMM_INTERNAL_LAYOUTS_H_

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace lockstep::comm::internal {

// Results of a call, and the tensors that they are copied into when it is done.
using Results = std::vector<std::pair<at::Tensor, at::Tensor>>;

void CopyResults(Results& results);

// Gives a backend contiguous tensors in place of dense ones with other strides, such as images in channels_last.
// Backends see the memory of a tensor only.
class Layouts {
 public:
  // `by_index`: the elements of the ranks' tensors correspond by their indices, whatever strides each rank has. For
  // that, tensors that are not contiguous are copied. Otherwise they correspond by their places in memory, as in
  // Python.
  explicit Layouts(bool by_index) : by_index_(by_index) {}

  // For a tensor that the call reads, writes, or both.
  at::Tensor Read(const at::Tensor& tensor) const;
  at::Tensor Write(const at::Tensor& tensor);
  at::Tensor Update(const at::Tensor& tensor);
  std::vector<at::Tensor> Read(const std::vector<at::Tensor>& tensors) const;
  std::vector<at::Tensor> Write(const std::vector<at::Tensor>& tensors);

  Results TakeResults() { return std::move(results_); }

 private:
  const bool by_index_;
  Results results_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_LAYOUTS_H_
