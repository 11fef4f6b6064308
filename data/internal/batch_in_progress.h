#ifndef LOCKSTEP_DATA_INTERNAL_BATCH_IN_PROGRESS_H_
#define LOCKSTEP_DATA_INTERNAL_BATCH_IN_PROGRESS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/internal/batch_memory.h"

namespace lockstep::data::internal {

// A batch's places, each filled by one thread, any and in any order.
class BatchInProgress {
 public:
  explicit BatchInProgress(std::vector<size_t> indices) : indices_(std::move(indices)), errors_(indices_.size()) {}

  size_t size() const { return indices_.size(); }
  int64_t index(size_t place) const { return static_cast<int64_t>(indices_[place]); }

  // Allocates memory for examples like `example`. Call it before anything is filled. Throws if memory runs out.
  void Allocate(const torch::data::Example<>& example, BatchMemory& memory);

  // Has `dataset` make the example of a place. Throws nothing.
  void Fill(size_t place, const Dataset& dataset, at::Generator& random);
  // Leaves a place out.
  void Fail(size_t place, absl::Status error) { errors_[place] = std::move(error); }
  const absl::Status& error(size_t place) const { return errors_[place]; }

  // Returns the filled examples in order. Call it once every place is filled or left out. Without any example the batch
  // has undefined tensors. Throws if memory runs out.
  torch::data::Example<> Take();

 private:
  std::vector<size_t> indices_;
  std::vector<absl::Status> errors_;  // by place
  at::Tensor data_, target_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_BATCH_IN_PROGRESS_H_
