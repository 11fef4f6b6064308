// A dataset's indices in random order, in the exact order of Python PyTorch's RandomSampler.

#ifndef LOCKSTEP_SAMPLER_RANDOM_SAMPLER_H_
#define LOCKSTEP_SAMPLER_RANDOM_SAMPLER_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep::sampler {
namespace internal {
struct Archive;
}

struct RandomSamplerOptions {
  bool replacement = false;  // True: an index may repeat. False: an index repeats only after all others have come.
  std::optional<int64_t> num_samples;  // Indices in an epoch, which may exceed the size. Default: the size.
  // A CPU generator. It continues from epoch to epoch, and the caller may use it too. Undefined: a new one each epoch,
  // seeded from LibTorch's default generator, so that torch::manual_seed determines the order.
  at::Generator generator;
};

// For one process. With the same generator it returns the same indices as torch.utils.data.RandomSampler of PyTorch
// 2.11, and leaves the generator in the same state.
//
//   torch::manual_seed(0);
//   absl::StatusOr<RandomSampler> sampler = RandomSampler::Create(60000, {});
//   auto loader = torch::data::make_data_loader(dataset, TorchSampler(*sampler), 64);  // torch_sampler.h
//   for (auto& batch : *loader) Train(batch);
//
// Random numbers are drawn when next() needs them, as in Python's iterator. Without a generator, the seed of the epoch
// is drawn at its first index. Then one permutation of the dataset is drawn at a time (with replacement, 32 indices at
// a time). The remaining draws happen when next() reaches the end after the last index. Without replacement that is one
// more permutation, even if none of it is used. An epoch that is abandoned earlier draws no more.
//
// At the start of an epoch, Python's DataLoader draws one number before the sampler does. To match it, call
// torch::empty({}, torch::kInt64).random_(generator), or random_() without a generator, before loader->begin().
//
// Memory: 8 bytes for each index of the dataset; with replacement, 32 indices.
//
// Copies share the generator: copy a sampler between epochs, as a DataLoader does. While a thread uses a copy, no other
// thread may call its methods. The generator has its own lock.
//
// Sampler's interface cannot return a status, so the members that say so throw c10::ValueError, as LibTorch does for a
// bad value. If memory runs out, next() throws the exception of LibTorch or the C++ library.
class RandomSampler : public Sampler {
 public:
  // Draws nothing. InvalidArgument: size or num_samples is not in [1, 2^62], or the generator is not a CPU generator.
  static absl::StatusOr<RandomSampler> Create(int64_t size, RandomSamplerOptions options);

  // The number of indices in an epoch.
  int64_t num_samples() const { return options_.num_samples.value_or(size_); }

  // Starts an epoch. After TorchSampler::load() it continues from the loaded place, once. If the dataset has grown or
  // shrunk, `new_size` sets its size and discards the loaded place. Throws c10::ValueError if new_size is not in [1,
  // 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices, fewer at the end of the epoch, then nullopt until reset(). Throws c10::ValueError if
  // batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

 private:
  friend struct internal::Archive;  // TorchSampler's save() and load()

  RandomSampler(int64_t size, const RandomSamplerOptions& options) : size_(size), options_(options) {}

  void StartEpoch();
  // The number of indices of a draw. The last draw of an epoch may have fewer.
  int64_t DrawSize() const { return options_.replacement ? 32 : size_; }
  at::Tensor Draw();
  // Draws until drawn_ holds the index at `position`. If `position` is num_samples(), draws to the end of the epoch.
  void DrawUpTo(int64_t position);

  // The generator's state at the start of the epoch. Undefined if a generator does not exist yet.
  at::Tensor StartState() const;
  // Continues after `consumed` indices of the epoch that began with `state`, for the next reset() too.
  void GoTo(const at::Tensor& state, int64_t consumed);

  int64_t size_;
  RandomSamplerOptions options_;
  bool restored_ = false;  // the next reset() keeps the members below

  at::Tensor start_state_;   // state of generator_ at the start of the epoch; undefined before that
  at::Generator generator_;  // this epoch's
  int64_t position_ = 0;     // indices of the epoch that next() has returned
  int64_t num_draws_ = 0;    // draws in this epoch
  at::Tensor drawn_;         // result of the last draw
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_RANDOM_SAMPLER_H_
