// The first part of DataParallel: a batch in chunks, one for each device.

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

// Throws c10::ValueError unless some of the devices, or all, have a chunk.
void CheckChunks(size_t chunks, size_t devices);

// Lets the version of each of `tensors` say that the one of `chunks` over its memory was written to, once all have
// been.
void NoteWrites(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& chunks);

template <typename T>
std::vector<at::Tensor> TensorsIn(const T& value) {
  std::vector<at::Tensor> tensors;
  ForEachTensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

}  // namespace internal

// `value` once for each device, with the device's chunk, moved there, in place of each tensor in it, to any depth
// (base/tensors.h says which types hold tensors, and how one's own are made to). What is no tensor is copied.
//
//   std::vector<at::Tensor> chunks = Scatter(images, {c10::Device("cuda:0"), c10::Device("cuda:1")});
//
// Chunks are torch::chunk's along `dim`, which counts from the end where negative: ceil(size / devices) each and the
// last one smaller, so 5 samples for 4 devices are 2, 2 and 1 and the result is shorter than `devices`. An empty batch
// is an empty chunk for each device. A tensor of no dimensions is copied whole, and so is an undefined one.
//
// Differentiable: gradients of the chunks are put together again. A chunk that stays on its device has the tensor's
// memory and a version of its own, so that what one module writes to its chunk does not disturb another's backward.
// From the CPU to a GPU the copy goes by pinned memory and a stream of its own, which the device's current one waits
// for; the host does not.
//
// Throws c10::ValueError if the tensors give different numbers of chunks or `devices` is empty, and c10::IndexError if
// a tensor has no dimension `dim`.
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
