// The first part of DataParallel: splits a batch into chunks, one for each device.

#ifndef LOCKSTEP_DP_SCATTER_H_
#define LOCKSTEP_DP_SCATTER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/tensors.h"

namespace lockstep::dp {

namespace internal {

// result[d][i]: the chunk of tensors[i] for the d-th device in use.
std::vector<std::vector<at::Tensor>> ScatterTensors(const std::vector<at::Tensor>& tensors,
                                                    const std::vector<c10::Device>& devices, int64_t dim);

// Throws c10::ValueError unless there are between one and `devices` chunks.
void CheckChunks(size_t chunks, size_t devices);

// Bumps the autograd version of each tensor whose chunk shares its memory and was written to. Call it after all writes.
void RecordWrites(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& chunks);

template <typename T>
std::vector<at::Tensor> TensorsIn(const T& value) {
  std::vector<at::Tensor> tensors;
  ForEachTensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

}  // namespace internal

// Returns `value` once for each device, with each tensor in it replaced by the device's chunk on that device, to any
// depth (base/tensors.h lists the types that may contain tensors, and how to add your own). A value that is not a
// tensor is copied.
//
//   std::vector<at::Tensor> chunks = Scatter(images, {c10::Device("cuda:0"), c10::Device("cuda:1")});
//
// Chunks are the same as from torch::chunk along `dim`, which counts from the end if it is negative: ceil(size /
// devices) each, and the last one may be smaller. So 5 samples for 4 devices are 2, 2 and 1, and the result is shorter
// than `devices`. An empty batch gives an empty chunk for each device. A tensor without dimensions, or an undefined
// one, is copied whole.
//
// Differentiable: gradients of the chunks are concatenated again. A chunk that stays on its device shares the tensor's
// memory but has a separate autograd version, so if one module writes to its chunk, another's backward is not affected.
// Copies from the CPU to a GPU use pinned memory and a separate stream. The device's current stream waits for it, and
// the host does not.
//
// Throws c10::ValueError if the tensors give different numbers of chunks or `devices` is empty, and c10::IndexError if
// a tensor does not have dimension `dim`.
template <typename T>
std::vector<T> Scatter(const T& value, const std::vector<c10::Device>& devices, int64_t dim = 0) {
  std::vector<T> parts;
  for (const std::vector<at::Tensor>& chunks : internal::ScatterTensors(internal::TensorsIn(value), devices, dim)) {
    auto next = chunks.begin();
    parts.push_back(MapTensors(value, [&](const at::Tensor&) { return *next++; }));
  }
  return parts;
}

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_SCATTER_H_
