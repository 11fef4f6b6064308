// What the loader reads from.

#ifndef LOCKSTEP_DATA_DATASET_H_
#define LOCKSTEP_DATA_DATASET_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/data/example.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::data {

// A map-style dataset: as many examples as size() says, each found by its index. One of your own implements this.
//
//   class Squares : public data::Dataset {
//    public:
//     int64_t size() const override { return 100; }
//     absl::StatusOr<torch::data::Example<>> Get(int64_t index, at::Generator& random) const override {
//       return torch::data::Example<>(torch::full({1}, index), torch::full({}, index * index));
//     }
//   };
//
// Get() and GetInto() are called by several threads at once, and may block, as for a file. `random` is this call's own:
// draw augmentation from it. The loader seeds it by its seed, the epoch and the index, so an example does not depend on
// which thread makes it, or when.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // The same at every call.
  virtual int64_t size() const = 0;

  // The example at `index`: its data, such as an image float [channels, height, width], and its target, such as a class
  // int64 []. Tensors on the CPU that nobody else writes to; the caller may. To be batched, all examples have the same
  // shapes and dtypes. An error names the example; OutOfRange: index is not in [0, size()).
  virtual absl::StatusOr<torch::data::Example<>> Get(int64_t index, at::Generator& random) const = 0;

  // The same written to `data` and `target`, which have the shapes and dtypes of Get()'s: an example's places in a
  // batch. InvalidArgument: the shapes or dtypes are others. By default it copies what Get() gives; override it where
  // an example can be made in place.
  virtual absl::Status GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_DATASET_H_
