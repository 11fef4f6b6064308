// Blocks of tokens from any number of files, as examples of a Dataset.

#ifndef LOCKSTEP_DATA_TOKENS_TOKEN_DATASET_H_
#define LOCKSTEP_DATA_TOKENS_TOKEN_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"
#include "lockstep/data/tokens/token_file.h"

namespace lockstep::data {

// Files whose tokens are one text, in this order, such as the shards of one corpus.
struct TokenSource {
  std::vector<std::string> files;
  TokenFormat format = TokenFormat::kDetect;
  double weight = 0;  // see TokenDatasetOptions::size
};

struct TokenDatasetOptions {
  int64_t block = 1024;  // tokens of an example
  // Without weights (all 0) an epoch has each block of each source once, and this must be 0. With weights, an epoch has
  // this many blocks, divided among the sources by their weights: give the number that the whole training needs. A
  // source with fewer blocks is repeated. Each time it comes in another order, which `seed` gives; so if it has more
  // blocks than its part, these are drawn from all of it.
  int64_t size = 0;
  int64_t seed = 0;
  // The number of different tokens. If it is positive, a token that is not below it is an error.
  int64_t vocabulary = 0;
  // The token that ends a document, such as GPT-2's 50256. If it is given, the target behind it, which belongs to
  // another document, is `ignored_target`.
  std::optional<int64_t> end_of_text;
  int64_t ignored_target = -100;  // cross_entropy_loss's ignore_index
};

// Example i has `data`, int64 [block], and `target`, int64 [block]: the token that follows each. A file of n tokens has
// (n - 1) / block blocks. A block begins where the last one ended, and reaches over documents, but not over files: fewer
// than `block` + 1 tokens at a file's end are not used.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto train, data::TokenDataset::Create({{{"train.bin"}}}, {.block = 1024}));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(train->size(), options));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto loader, data::Loader::Create(train.get(), &sampler, {.batch_size = 8}));
//
// The order is the sampler's, and so are shuffling, ranks, virtual ranks and going on in mid-epoch. An example depends
// on the sources, the options and its index alone.
//
// Memory: each file's path and 32 bytes. Up to 64 files are open at a time. Thread safety: Get() may be called by
// several threads at once.
class TokenDataset final : public Dataset {
 public:
  // Looks at each file once. InvalidArgument: an option is out of range, weights are negative, NaN, or given for some
  // sources only, or a source with a part in the epoch has no block. Other errors come from TokenFile::Open().
  static absl::StatusOr<std::unique_ptr<TokenDataset>> Create(const std::vector<TokenSource>& sources,
                                                              const TokenDatasetOptions& options);
  ~TokenDataset() override;

  int64_t size() const override { return size_; }
  int64_t tokens() const;  // of all files, used or not

  // Errors name the file and the place in it. OutOfRange: as of Dataset::Get(). InvalidArgument: a token is not in the
  // vocabulary. DataLoss: a file has changed its length since Create(). NotFound: it is gone.
  absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const override;
  absl::Status GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const override;

 private:
  class OpenFiles;
  struct Source {
    std::vector<TokenFile> files;
    std::vector<int64_t> ends;  // ends[f]: the blocks of files 0 to f
    int64_t first = 0;          // the index of its first example
    int64_t blocks() const { return ends.empty() ? 0 : ends.back(); }
  };

  explicit TokenDataset(const TokenDatasetOptions& options);
  absl::Status Divide(const std::vector<TokenSource>& sources);
  // Checks tokens against the vocabulary, and takes out targets in another document.
  absl::Status Finish(const TokenFile& file, int64_t begin, absl::Span<int64_t> inputs,
                      absl::Span<int64_t> targets) const;

  const TokenDatasetOptions options_;
  std::vector<Source> sources_;
  int64_t size_ = 0;
  std::unique_ptr<OpenFiles> open_files_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_TOKEN_DATASET_H_
