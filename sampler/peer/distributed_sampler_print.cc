// Prints what DistributedSampler gives, for distributed_sampler_peer_test.
//
// Each line of standard input is: size num_replicas rank seed epoch shuffle drop_last
// and is answered by a line: num_samples total_size index...

#include <cstdint>
#include <iostream>

#include "lockstep/sampler/distributed_sampler.h"

namespace {

using ::lockstep::sampler::DistributedSampler;
using ::lockstep::sampler::DistributedSamplerOptions;

absl::Status Run() {
  int64_t size = 0, epoch = 0;
  DistributedSamplerOptions options;
  while (std::cin >> size >> options.num_replicas >> options.rank >> options.seed >> epoch >> options.shuffle >>
         options.drop_last) {
    absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(size, options);
    if (!sampler.ok()) return sampler.status();
    sampler->set_epoch(epoch);
    std::cout << sampler->num_samples() << ' ' << sampler->total_size();
    for (const int64_t index : sampler->Indices()) std::cout << ' ' << index;
    std::cout << '\n';
  }
  return std::cin.eof() ? absl::OkStatus()
                        : absl::InvalidArgumentError("a line of standard input is not seven numbers");
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << '\n';
  return status.ok() ? 0 : 1;
}
