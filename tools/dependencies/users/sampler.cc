#include "lockstep/sampler/distributed_sampler.h"

int main() {
  const auto sampler = lockstep::sampler::DistributedSampler::Create(/*size=*/10, {/*num_replicas=*/2, /*rank=*/0});
  return sampler.ok() && sampler->Indices().size() == 5 ? 0 : 1;
}
