// Prints check sums of a TokenDataset's examples in the order of a DistributedSampler, for token_dataset_peer_test.
//
// Each line of standard input is: block size seed end_of_text (-1: none), the number of sources, of each source its
// format, weight and number of files, and their paths; then the sampler's ranks, seed, epoch and the number of indices
// of each rank that have been used, and with how many ranks training goes on. The answer is a line with the number of
// examples and the CRC-32 of each rank's remaining examples.

#include <ATen/CPUGeneratorImpl.h>
#include <zlib.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/token_dataset.h"
#include "lockstep/data/tokens/token_file.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler_state.h"

namespace {

using ::lockstep::data::Example;
using ::lockstep::data::TokenDataset;
using ::lockstep::data::TokenDatasetOptions;
using ::lockstep::data::TokenFormat;
using ::lockstep::data::TokenSource;
using ::lockstep::sampler::DistributedSampler;
using ::lockstep::sampler::SamplerState;

constexpr TokenFormat kFormats[] = {TokenFormat::kDetect, TokenFormat::kUint16, TokenFormat::kUint32,
                                    TokenFormat::kLlmC};

std::vector<TokenSource> ReadSources() {
  size_t count = 0;
  std::cin >> count;
  std::vector<TokenSource> sources(count);
  for (TokenSource& source : sources) {
    int format = 0;
    size_t files = 0;
    std::cin >> format >> source.weight >> files;
    source.format = kFormats[format];
    source.files.resize(files);
    for (std::string& file : source.files) std::cin >> file;
  }
  return sources;
}

uint32_t Add(uint32_t crc, const at::Tensor& tensor) {
  return crc32(crc, static_cast<const uint8_t*>(tensor.const_data_ptr()), static_cast<unsigned int>(tensor.nbytes()));
}

absl::Status PrintCase(TokenDatasetOptions options) {
  int64_t end_of_text = -1, ranks = 1, seed = 0, epoch = 0, used = 0, ranks_after = 1;
  std::cin >> options.size >> options.seed >> end_of_text;
  if (end_of_text >= 0) options.end_of_text = end_of_text;
  const std::vector<TokenSource> sources = ReadSources();
  std::cin >> ranks >> seed >> epoch >> used >> ranks_after;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto dataset, TokenDataset::Create(sources, options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto before, DistributedSampler::Create(dataset->size(), {ranks, 0, true, seed}));
  before.set_epoch(epoch);
  const SamplerState state = before.State(used);
  at::Generator random = at::detail::createCPUGenerator(0);
  for (int64_t rank = 0; rank < ranks_after; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                              DistributedSampler::Create(dataset->size(), {ranks_after, rank, true, seed}));
    LOCKSTEP_RETURN_IF_ERROR(sampler.Restore(state));
    sampler.set_epoch(epoch);
    int64_t count = 0;
    uint32_t crc = 0;
    for (const int64_t index : sampler) {
      LOCKSTEP_ASSIGN_OR_RETURN(const Example example, dataset->Get(index, random));
      crc = Add(Add(crc, example.data), example.target);
      ++count;
    }
    std::cout << count << ' ' << crc << ' ';
  }
  std::cout << '\n';
  return absl::OkStatus();
}

}  // namespace

int main() {
  TokenDatasetOptions options;
  while (std::cin >> options.block) {
    const absl::Status status = PrintCase(options);
    if (!status.ok()) {
      std::cerr << status << '\n';
      return 1;
    }
  }
}
