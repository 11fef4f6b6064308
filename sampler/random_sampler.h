// A dataset's indices at random, in exactly the order that Python PyTorch's RandomSampler gives them.

#ifndef LOCKSTEP_SAMPLER_RANDOM_SAMPLER_H_
#define LOCKSTEP_SAMPLER_RANDOM_SAMPLER_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::sampler {

struct RandomSamplerOptions {
  bool replacement = false;            // Draw each index anew; false: an index comes again once all others have come.
  std::optional<int64_t> num_samples;  // Indices an epoch, also more than the size; by default the size.
  // A CPU generator, which goes on from epoch to epoch and stays the caller's too. Undefined: a new one each epoch,
  // seeded from LibTorch's default generator, so that torch::manual_seed decides.
  at::Generator generator;
};

// A torch::data sampler for one process that gives, index by index, what torch.utils.data.RandomSampler of PyTorch 2.11
// gives with the same generator, and leaves that in the same state.
//
//   torch::manual_seed(0);
//   absl::StatusOr<RandomSampler> sampler = RandomSampler::Create(60000, {});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, 64);
//   for (auto& batch : *loader) Train(batch);
//
// Random numbers are drawn as next() reaches them, as Python's iterator does: the seed of an epoch without a generator
// at its first index; then a permutation of the dataset, or with replacement 32 indices, at a time. It reaches the end
// of the epoch only after the last index: there it draws the rest, which without replacement is one permutation more
// even if nothing of it is used. An epoch that is left before draws no more.
//
// Python's DataLoader draws one number itself when an epoch begins, before the sampler does. To follow it, do the same:
// torch::empty({}, torch::kInt64).random_(generator), or random_() without a generator, ahead of loader->begin().
//
// Holds 8 bytes an index of the dataset; with replacement, 32 indices.
//
// Copies share the generator: copy a sampler, as a DataLoader does, between epochs. Nothing here may be called while
// another thread uses the same copy; the generator has a lock of its own.
//
// Inside LibTorch's interfaces there is no status to return, so the members that say so throw what LibTorch throws for
// a bad value: c10::ValueError. Where memory runs out, next() and load() throw what LibTorch or the C++ library throws.
class RandomSampler : public torch::data::samplers::Sampler<> {
 public:
  // Draws nothing. InvalidArgument where size or num_samples is not in [1, 2^62], or the generator is not a CPU one.
  static absl::StatusOr<RandomSampler> Create(int64_t size, RandomSamplerOptions options);

  // The indices per epoch.
  int64_t num_samples() const { return options_.num_samples.value_or(size_); }

  // Starts an epoch, or after load() goes on there, once. `new_size` is for a dataset that has grown or shrunk; it also
  // forgets the place that load() has read. Throws c10::ValueError where new_size is not in [1, 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices, fewer at the end of the epoch, then nullopt until reset(). Throws c10::ValueError
  // where batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Writes the generator's state when the epoch began and how many indices next() has given out. load() puts the
  // generator, also the caller's, where it was after them, by drawing them again: the next reset() or next() goes on
  // there, and with a generator given, the epochs to come are the same too. Without one they follow from LibTorch's
  // default generator, which is not saved here. Load before a DataLoader takes its copy. If others drew from the
  // generator in that epoch, load() cannot know. Throws c10::ValueError, and changes nothing, where size, num_samples
  // or replacement are not this sampler's, or just one of the two was given a generator; c10::Error where the archive
  // lacks a field or the state is no generator's.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  RandomSampler(int64_t size, const RandomSamplerOptions& options) : size_(size), options_(options) {}

  void StartEpoch();
  // How many indices a draw gives; the epoch's last may give fewer.
  int64_t DrawSize() const { return options_.replacement ? 32 : size_; }
  at::Tensor Draw();
  // Draws until drawn_ holds the index at `position`; for num_samples(), to the end of the epoch.
  void DrawUpTo(int64_t position);

  int64_t size_;
  RandomSamplerOptions options_;
  bool restored_ = false;  // The next reset() keeps the members below.

  at::Tensor start_state_;   // generator_'s when the epoch began; undefined before that.
  at::Generator generator_;  // This epoch's.
  int64_t position_ = 0;     // How many indices of the epoch next() has given out.
  int64_t num_draws_ = 0;    // Of this epoch,
  at::Tensor drawn_;         // and what the last one gave.
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_RANDOM_SAMPLER_H_
