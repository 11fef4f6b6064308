// One example of a dataset, or a batch of them.

#ifndef LOCKSTEP_DATA_EXAMPLE_H_
#define LOCKSTEP_DATA_EXAMPLE_H_

#include <ATen/core/Tensor.h>

namespace lockstep::data {

// An example of a Dataset: `data` may be an image, float [channels, height, width], and `target` its class, int64 [].
// Or a batch of a Loader, with the examples stacked: data [n, ...] and target [n, ...]. Copies share the tensors'
// memory.
struct Example {
  at::Tensor data;
  at::Tensor target;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_EXAMPLE_H_
