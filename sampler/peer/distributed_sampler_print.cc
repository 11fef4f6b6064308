// Prints the results of DistributedSampler and DistributedBatchSampler, for distributed_sampler_peer_test.
//
// Each line of standard input is: size num_replicas rank seed epoch shuffle drop_last batch_size drop_last_batch
// and is answered by a line: num_samples total_size index...
// or, where batch_size is not 0, by: num_batches, and of each batch a bar and its indices

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/sampler/distributed_batch_sampler.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace {

using ::lockstep::sampler::DistributedBatchSampler;
using ::lockstep::sampler::DistributedBatchSamplerOptions;
using ::lockstep::sampler::DistributedSampler;
using ::lockstep::sampler::DistributedSamplerOptions;

absl::Status PrintIndices(int64_t size, const DistributedSamplerOptions& options, int64_t epoch) {
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler sampler, DistributedSampler::Create(size, options));
  sampler.set_epoch(epoch);
  std::cout << sampler.num_samples() << ' ' << sampler.total_size();
  for (const int64_t index : sampler.Indices()) std::cout << ' ' << index;
  return absl::OkStatus();
}

absl::Status PrintBatches(int64_t size, const DistributedBatchSamplerOptions& options, int64_t epoch) {
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedBatchSampler batches, DistributedBatchSampler::Create(size, options));
  batches.set_epoch(epoch);
  std::cout << batches.num_batches();
  for (const std::vector<size_t>& batch : batches) {
    std::cout << " |";
    for (const size_t index : batch) std::cout << ' ' << index;
  }
  return absl::OkStatus();
}

absl::Status Run() {
  int64_t size = 0, epoch = 0;
  DistributedBatchSamplerOptions options;
  DistributedSamplerOptions& sampler = options.sampler;
  while (std::cin >> size >> sampler.num_replicas >> sampler.rank >> sampler.seed >> epoch >> sampler.shuffle >>
         sampler.drop_last >> options.batch_size >> options.drop_last) {
    LOCKSTEP_RETURN_IF_ERROR(options.batch_size == 0 ? PrintIndices(size, sampler, epoch)
                                                     : PrintBatches(size, options, epoch));
    std::cout << '\n';
  }
  return std::cin.eof() ? absl::OkStatus() : absl::InvalidArgumentError("a line of standard input is not nine numbers");
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << '\n';
  return status.ok() ? 0 : 1;
}
