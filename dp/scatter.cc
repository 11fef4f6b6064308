#include "lockstep/dp/scatter.h"

#include <ATen/ops/unsafe_split_with_sizes.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "lockstep/dp/internal/copy.h"

namespace lockstep::dp {
namespace internal {
namespace {

bool IsChunked(const at::Tensor& tensor) { return tensor.defined() && tensor.dim() > 0; }

// torch::chunk's sizes.
std::vector<int64_t> ChunkSizes(int64_t size, int64_t chunks) {
  if (size == 0) return std::vector<int64_t>(chunks, 0);
  const int64_t chunk = (size + chunks - 1) / chunks;
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < size; begin += chunk) sizes.push_back(std::min(chunk, size - begin));
  return sizes;
}

// A module may write to its chunk. Autograd forbids writes to one of several views of a tensor with a gradient. Views
// of a tensor without one share a version, so a write by one module would invalidate what another saved for backward.
// So the parts are not views for autograd.
std::vector<at::Tensor> Split(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int64_t dim) {
  if (sizes.size() == 1) return {tensor};
  return at::unsafe_split_with_sizes(tensor, sizes, dim);
}

// The sizes of each tensor's chunks: none for a tensor that is copied whole.
std::vector<std::vector<int64_t>> AllChunkSizes(const std::vector<at::Tensor>& tensors, int64_t devices, int64_t dim) {
  std::vector<std::vector<int64_t>> sizes(tensors.size());
  const at::Tensor* first = nullptr;
  size_t chunks = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!IsChunked(tensor)) continue;
    TORCH_CHECK_INDEX(-tensor.dim() <= dim && dim < tensor.dim(), "Scatter: expected tensors with a dimension ", dim,
                      ", found tensor ", i, " of shape ", tensor.sizes());
    sizes[i] = ChunkSizes(tensor.size(dim), devices);
    if (!first) {
      first = &tensor;
      chunks = sizes[i].size();
    }
    TORCH_CHECK_VALUE(sizes[i].size() == chunks, "Scatter: expected the same number of chunks of every tensor along ",
                      "dimension ", dim, " for ", devices, " devices, found ", chunks, " of shape ", first->sizes(),
                      " and ", sizes[i].size(), " of tensor ", i, " of shape ", tensor.sizes());
  }
  return sizes;
}

}  // namespace

std::vector<std::vector<at::Tensor>> ScatterTensors(const std::vector<at::Tensor>& tensors,
                                                    const std::vector<c10::Device>& devices, int64_t dim) {
  TORCH_CHECK_VALUE(!devices.empty(), "Scatter: expected one device or more, found none");
  const auto sizes = AllChunkSizes(tensors, static_cast<int64_t>(devices.size()), dim);
  size_t used = devices.size();
  for (const auto& of_tensor : sizes) {
    if (!of_tensor.empty()) used = of_tensor.size();
  }
  std::vector<std::vector<at::Tensor>> parts(used);
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<at::Tensor> chunks(used, tensors[i]);
    if (IsChunked(tensors[i])) chunks = Split(tensors[i], sizes[i], dim);
    for (size_t d = 0; d < used; ++d) parts[d].push_back(CopyTo(chunks[d], devices[d]));
  }
  return parts;
}

void CheckChunks(size_t chunks, size_t devices) {
  TORCH_CHECK_VALUE(1 <= chunks && chunks <= devices, "DataParallel: expected 1 to ", devices, " chunks of Scatter, ",
                    "found ", chunks);
}

void RecordWrites(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& chunks) {
  for (size_t i = 0; i < std::min(tensors.size(), chunks.size()); ++i) {
    const at::Tensor &tensor = tensors[i], &chunk = chunks[i];
    if (!tensor.defined() || !chunk.defined() || chunk.is_same(tensor)) continue;
    if (tensor.is_inference() || chunk.is_inference() || chunk.is_view() || !chunk.is_alias_of(tensor)) continue;
    if (chunk._version() > 0) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace internal
}  // namespace lockstep::dp
