// The interface of datasets.

#ifndef LOCKSTEP_DATA_DATASET_H_
#define LOCKSTEP_DATA_DATASET_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/example.h"

namespace lockstep::data {

// A map-style dataset: size() examples, each found by its index. data::Loader makes batches of them, and LibTorch's own
// DataLoader does by way of torch_dataset.h. Implement this class for your own data:
//
//   class Squares : public data::Dataset {
//    public:
//     int64_t size() const override { return 100; }
//     absl::StatusOr<data::Example> Get(int64_t index, at::Generator& random) const override {
//       return data::Example{torch::full({1}, index), torch::full({}, index * index)};
//     }
//   };
//
// Get() and GetInto() are called by several threads at once. They may block, for example to read a file. Each call gets
// a separate generator `random`: draw augmentation from it. The loader seeds it from its seed, the epoch and the index,
// so an example does not depend on the thread or the time of the call.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // The number of examples. Must be the same at every call.
  virtual int64_t size() const = 0;

  // The example at `index`. `data` may be an image, float [channels, height, width], and `target` a class, int64 [].
  // The tensors are on the CPU, no other code writes to them, and the caller may write to them. For batching, all
  // examples must have the same shapes and dtypes. Errors must name the example. OutOfRange: index is not in [0,
  // size()).
  virtual absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const = 0;

  // Writes the same example to `data` and `target`, its places in a batch, which have the shapes and dtypes of Get()'s
  // result. InvalidArgument: the shapes or dtypes differ. The default copies the result of Get(). Override it if an
  // example can be created in place.
  virtual absl::Status GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_DATASET_H_
