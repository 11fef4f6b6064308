#include "lockstep/data/tokens/token_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/sampler/feistel_permutation.h"

namespace lockstep::data {
namespace {

absl::Status CheckOptions(const TokenDatasetOptions& options) {
  const auto error = [](absl::string_view name, int64_t found, absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("TokenDataset: ", name, " is ", found, ", expected ", expected));
  };
  if (options.block < 1 || options.block > (int64_t{1} << 40)) return error("block", options.block, "1 to 2^40");
  if (options.size < 0) return error("size", options.size, "at least 0");
  if (options.vocabulary < 0) return error("vocabulary", options.vocabulary, "at least 0");
  return absl::OkStatus();
}

// Divides `size` by `weights`: each gets its share rounded down, and those with the largest remainders one more.
std::vector<int64_t> Shares(const std::vector<double>& weights, int64_t size) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = size;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(size) * (weights[i] / sum);
    shares.push_back(std::min(static_cast<int64_t>(share), left));
    remainders.emplace_back(static_cast<double>(shares[i]) - share, i);
    left -= shares[i];
  }
  std::sort(remainders.begin(), remainders.end());
  for (int64_t i = 0; i < left; ++i) ++shares[remainders[i % remainders.size()].second];
  return shares;
}

}  // namespace

// The descriptors of the files that were read last.
class TokenDataset::OpenFiles {
 public:
  using Descriptor = std::shared_ptr<const UniqueFd>;

  absl::StatusOr<Descriptor> Get(const TokenFile& file) {
    const size_t place = (reinterpret_cast<uintptr_t>(&file) / sizeof(TokenFile)) % kSlots;
    {
      absl::MutexLock lock(&mutex_);
      if (slots_[place].file == &file) return slots_[place].descriptor;
    }
    absl::StatusOr<UniqueFd> opened = OpenRegularFile(file.path());
    if (!opened.ok()) return Annotate(opened.status(), file.path());
    auto descriptor = std::make_shared<const UniqueFd>(*std::move(opened));
    absl::MutexLock lock(&mutex_);
    slots_[place] = {&file, descriptor};
    return descriptor;
  }

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    const TokenFile* file = nullptr;
    Descriptor descriptor;
  };

  absl::Mutex mutex_;
  std::array<Slot, kSlots> slots_ ABSL_GUARDED_BY(mutex_);
};

TokenDataset::TokenDataset(const TokenDatasetOptions& options)
    : options_(options), open_files_(std::make_unique<OpenFiles>()) {}

TokenDataset::~TokenDataset() = default;

absl::StatusOr<std::unique_ptr<TokenDataset>> TokenDataset::Create(const std::vector<TokenSource>& sources,
                                                                   const TokenDatasetOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<TokenDataset> dataset(new TokenDataset(options));
  for (const TokenSource& given : sources) {
    Source& source = dataset->sources_.emplace_back();
    source.files.reserve(given.files.size());
    source.ends.reserve(given.files.size());
    for (const std::string& path : given.files) {
      LOCKSTEP_ASSIGN_OR_RETURN(TokenFile file, TokenFile::Open(path, given.format));
      const int64_t blocks = std::max<int64_t>(file.size() - 1, 0) / options.block;
      source.ends.push_back(source.blocks() + blocks);
      source.files.push_back(std::move(file));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(dataset->Divide(sources));
  return dataset;
}

absl::Status TokenDataset::Divide(const std::vector<TokenSource>& sources) {
  std::vector<double> weights;
  for (const TokenSource& source : sources) {
    if (source.weight == 0) continue;
    if (!(source.weight > 0) || !std::isfinite(source.weight)) {
      return absl::InvalidArgumentError(absl::StrCat("TokenDataset: the weight of source ", &source - sources.data(),
                                                     " is ", source.weight, ", expected a number above 0"));
    }
    weights.push_back(source.weight);
  }
  if (!weights.empty() && weights.size() < sources.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TokenDataset: ", weights.size(), " of ", sources.size(), " sources have a weight, expected all"));
  }
  if (weights.empty() != (options_.size == 0)) {
    return absl::InvalidArgumentError(weights.empty() ? "TokenDataset: size needs weights"
                                                      : "TokenDataset: weights need a size, the blocks of an epoch");
  }
  const std::vector<int64_t> shares = Shares(weights, options_.size);
  for (size_t s = 0; s < sources_.size(); ++s) {
    sources_[s].first = size_;
    const int64_t share = weights.empty() ? sources_[s].blocks() : shares[s];
    if (share > 0 && sources_[s].blocks() == 0) {
      return absl::InvalidArgumentError(absl::StrCat("TokenDataset: source ", s, " has no file with ",
                                                     options_.block + 1, " tokens, which a block of ", options_.block,
                                                     " needs"));
    }
    size_ += share;
  }
  return absl::OkStatus();
}

int64_t TokenDataset::tokens() const {
  int64_t tokens = 0;
  for (const Source& source : sources_) {
    for (const TokenFile& file : source.files) tokens += file.size();
  }
  return tokens;
}

absl::StatusOr<Example> TokenDataset::Get(int64_t index, at::Generator& random) const {
  Example example;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("TokenDataset", [&] {
    example.data = at::empty({options_.block}, at::kLong);
    example.target = at::empty({options_.block}, at::kLong);
  }));
  LOCKSTEP_RETURN_IF_ERROR(GetInto(index, random, example.data, example.target));
  return example;
}

absl::Status TokenDataset::GetInto(int64_t index, at::Generator&, at::Tensor& data, at::Tensor& target) const {
  if (index < 0 || index >= size_)
    return absl::OutOfRangeError(absl::StrCat("TokenDataset: block ", index, ", expected below ", size_));
  for (const at::Tensor* tensor : {&data, &target}) {
    if (tensor->scalar_type() == at::kLong && tensor->dim() == 1 && tensor->size(0) == options_.block &&
        tensor->is_contiguous())
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("TokenDataset: expected a place for ", options_.block, " int64 in a row"));
  }
  // The last source that begins at or before the index, and has a part.
  const auto after = std::upper_bound(sources_.begin(), sources_.end(), index,
                                      [](int64_t i, const Source& source) { return i < source.first; });
  const Source& source = *(after - 1);
  int64_t block = index - source.first;
  if (options_.size > 0) {
    const int64_t blocks = source.blocks();
    block = sampler::FeistelPermutation(blocks, options_.seed, block / blocks)(block % blocks);
  }
  const size_t f = std::upper_bound(source.ends.begin(), source.ends.end(), block) - source.ends.begin();
  const TokenFile& file = source.files[f];
  const int64_t begin = (block - (f == 0 ? 0 : source.ends[f - 1])) * options_.block;
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenFiles::Descriptor descriptor, open_files_->Get(file));
  const absl::Span<int64_t> inputs(data.mutable_data_ptr<int64_t>(), options_.block);
  const absl::Span<int64_t> targets(target.mutable_data_ptr<int64_t>(), options_.block);
  LOCKSTEP_RETURN_IF_ERROR(file.Read(descriptor->get(), begin, inputs, targets));
  return Finish(file, begin, inputs, targets);
}

absl::Status TokenDataset::Finish(const TokenFile& file, int64_t begin, absl::Span<int64_t> inputs,
                                  absl::Span<int64_t> targets) const {
  if (options_.vocabulary > 0) {
    const auto check = [&](int64_t token, int64_t place) {
      if (token < options_.vocabulary) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": token ", place, " is ", token, ", expected below ",
                                                     options_.vocabulary, ", the size of the vocabulary"));
    };
    LOCKSTEP_RETURN_IF_ERROR(check(inputs[0], begin));
    const auto largest = std::max_element(targets.begin(), targets.end());
    LOCKSTEP_RETURN_IF_ERROR(check(*largest, begin + 1 + (largest - targets.begin())));
  }
  if (options_.end_of_text) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == *options_.end_of_text) targets[i] = options_.ignored_target;
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::data
