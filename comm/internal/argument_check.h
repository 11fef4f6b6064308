#ifndef LOCKSTEP_COMM_INTERNAL_ARGUMENT_CHECK_H_
#define LOCKSTEP_COMM_INTERNAL_ARGUMENT_CHECK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::comm::internal {

// Checks of a collective's arguments, made before anything is sent. Each returns InvalidArgument with the expected and
// the found value. A successful check builds no string.

// Defined, dense, contiguous, and no lazily conjugated or negated view; Unimplemented for a quantized one.
absl::Status CheckTensor(const at::Tensor& tensor);

// CheckTensor() for a tensor whose strides may have any order, such as channels_last, without gaps or overlaps in
// memory.
absl::Status CheckDense(const at::Tensor& tensor);

// CheckTensor() of `tensor` and of each of `list`, called `name`.
absl::Status CheckContiguous(const at::Tensor& tensor, const std::vector<at::Tensor>& list, absl::string_view name);

// CheckTensor(), naming the tensor `name`, or "`name` `index`" with an index of at least 0.
absl::Status CheckNamed(const at::Tensor& tensor, absl::string_view name, int64_t index = -1);

// Each of `list`, called `name`, is a tensor of `like`'s dtype and device; there are `size` of them ("one a rank").
// With `same_shape` they have its shape and are dense; otherwise they are contiguous.
absl::Status CheckList(const std::vector<at::Tensor>& list, absl::string_view name, const at::Tensor& like, int size,
                       bool same_shape);

// `tensor`, called `name`, has `like`'s dtype and device.
absl::Status CheckAlike(const at::Tensor& tensor, absl::string_view name, const at::Tensor& like);

// `large`, called `name`, holds `size` times as many elements as `small`, with its dtype and device.
absl::Status CheckMultiple(const at::Tensor& large, absl::string_view name, const at::Tensor& small, int size);

// `tensor`'s first dimension is cut by `splits`, one a rank; none: into `size` equal parts.
absl::Status CheckSplits(const at::Tensor& tensor, absl::string_view name, const std::vector<int64_t>& splits,
                         int size);

// A list that only root gives: empty on the others.
absl::Status CheckEmptyUnlessRoot(const std::vector<at::Tensor>& list, absl::string_view name, int rank, int root);

// "`what` 7 is not a rank of a group of 2".
absl::Status CheckRank(int rank, absl::string_view what, int size);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_ARGUMENT_CHECK_H_
