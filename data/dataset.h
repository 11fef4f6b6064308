// What the loader reads from.

#ifndef LOCKSTEP_DATA_DATASET_H_
#define LOCKSTEP_DATA_DATASET_H_

#include <torch/data/example.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace lockstep::data {

// A map-style dataset: as many examples as size() says, each found by its index. One of your own implements this.
//
//   class Squares : public data::Dataset {
//    public:
//     int64_t size() const override { return 100; }
//     absl::StatusOr<torch::data::Example<>> Get(int64_t index) const override {
//       return torch::data::Example<>(torch::full({1}, index), torch::full({}, index * index));
//     }
//   };
class Dataset {
 public:
  virtual ~Dataset() = default;

  // The same at every call.
  virtual int64_t size() const = 0;

  // The example at `index`: its data, such as an image float [channels, height, width], and its target, such as a class
  // int64 []. Tensors on the CPU that nobody else writes to; the caller may. To be batched, all examples have the same
  // shapes and dtypes.
  //
  // Called by several threads at once, and may block, as for a file. An error names the example and ends the epoch;
  // OutOfRange: index is not in [0, size()).
  virtual absl::StatusOr<torch::data::Example<>> Get(int64_t index) const = 0;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_DATASET_H_
