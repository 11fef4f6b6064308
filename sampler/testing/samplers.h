// Helpers for tests of samplers.

#ifndef LOCKSTEP_SAMPLER_TESTING_SAMPLERS_H_
#define LOCKSTEP_SAMPLER_TESTING_SAMPLERS_H_

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/torch_sampler.h"

namespace lockstep::sampler::testing {

// All indices of next() up to the end of the epoch.
inline std::vector<int64_t> Drain(Sampler& sampler, size_t batch_size = 3) {
  std::vector<int64_t> indices;
  while (std::optional<std::vector<size_t>> batch = sampler.next(batch_size)) {
    indices.insert(indices.end(), batch->begin(), batch->end());
  }
  return indices;
}

// The next `count` indices in one batch.
inline std::vector<int64_t> First(Sampler& sampler, size_t count) {
  const std::vector<size_t> batch = sampler.next(count).value();
  return {batch.begin(), batch.end()};
}

// FNV-1a over whole indices instead of bytes, as hash_of() in the scripts that write golden files.
inline uint64_t HashOf(const std::vector<int64_t>& indices) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int64_t index : indices) hash = (hash ^ index) * 0x100000001b3;
  return hash;
}

inline std::vector<int64_t> UpTo(int64_t size) {
  std::vector<int64_t> values(size);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

// Saves `from` and loads it into `to`, by way of TorchSampler. `to` is also what an error leaves.
template <typename S>
void Transfer(const S& from, S& to) {
  torch::serialize::OutputArchive out;
  TorchSampler<S>(from).save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  TorchSampler<S> loaded(to);
  const auto assign = absl::MakeCleanup([&] { to = loaded.sampler(); });
  loaded.load(in);
}

// The message of the c10::ValueError that f throws.
template <typename F>
std::string ValueErrorOf(F f) {
  try {
    f();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

// A dataset whose batch is the request itself.
class Identity : public torch::data::datasets::BatchDataset<Identity, std::vector<size_t>> {
 public:
  std::vector<size_t> get_batch(at::ArrayRef<size_t> indices) override { return indices.vec(); }
  std::optional<size_t> size() const override { return 103; }
};

template <typename S>
auto MakeLoader(const S& sampler, size_t workers) {
  return torch::data::make_data_loader(
      Identity(), TorchSampler<S>(sampler),
      torch::data::DataLoaderOptions().batch_size(8).workers(workers).enforce_ordering(true));
}

// The indices of one epoch of a loader.
template <typename Loader>
std::vector<int64_t> Epoch(Loader& loader) {
  std::vector<int64_t> indices;
  for (const std::vector<size_t>& batch : *loader) indices.insert(indices.end(), batch.begin(), batch.end());
  return indices;
}

}  // namespace lockstep::sampler::testing

#endif  // LOCKSTEP_SAMPLER_TESTING_SAMPLERS_H_
