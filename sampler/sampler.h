// The interface of samplers.

#ifndef LOCKSTEP_SAMPLER_SAMPLER_H_
#define LOCKSTEP_SAMPLER_SAMPLER_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep::sampler {

// Chooses the indices of a dataset that a rank trains on, and their order. data::Loader takes any sampler. For
// LibTorch's own DataLoader wrap it in a TorchSampler (torch_sampler.h). Implement this class for your own order:
//
//   class Backwards : public sampler::Sampler {
//    public:
//     void reset(std::optional<size_t> new_size = std::nullopt) override { left_ = size_ = new_size.value_or(size_); }
//     std::optional<std::vector<size_t>> next(size_t batch_size) override {
//       std::vector<size_t> batch;
//       while (left_ > 0 && batch.size() < batch_size) batch.push_back(--left_);
//       return batch.empty() ? std::nullopt : std::optional(batch);
//     }
//
//    private:
//     size_t size_ = 100, left_ = 100;
//   };
//
// A loader calls reset() and next() from one thread at a time. Both may throw.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // Starts an epoch. If the dataset has grown or shrunk, `new_size` sets its size from now on.
  virtual void reset(std::optional<size_t> new_size = std::nullopt) = 0;

  // The next `batch_size` indices of this rank, fewer at the end of the epoch, then nullopt until reset(). Requires:
  // batch_size is at least 1.
  virtual std::optional<std::vector<size_t>> next(size_t batch_size) = 0;
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_SAMPLER_H_
