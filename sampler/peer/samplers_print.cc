// Prints the results of RandomSampler or WeightedSampler, for samplers_peer_test.
//
// Each line of standard input is "random" or "weighted" and the golden file script's FIELDS. The answer is a line of
// indices. For a RandomSampler the next number of its generator follows.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/random_sampler.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/weighted_sampler.h"

namespace {

using ::lockstep::sampler::RandomSampler;
using ::lockstep::sampler::RandomSamplerOptions;
using ::lockstep::sampler::WeightedSampler;
using ::lockstep::sampler::WeightedSamplerOptions;

void Print(const std::vector<size_t>& batch) {
  for (const size_t index : batch) std::cout << index << ' ';
}

void PrintEpoch(lockstep::sampler::Sampler& sampler) {
  while (std::optional<std::vector<size_t>> batch = sampler.next(7)) Print(*batch);
}

int64_t NextNumber(const at::Generator& generator) {
  return at::empty({}, at::kLong).random_(generator).item<int64_t>();
}

absl::Status PrintRandom() {
  int64_t size = 0, num_samples = 0, seed = 0, epochs = 0, stop = 0;
  bool own_generator = false, loader = false;
  RandomSamplerOptions options;
  std::cin >> size >> num_samples >> options.replacement >> own_generator >> loader >> seed >> epochs >> stop;
  options.num_samples = num_samples;
  at::manual_seed(seed);
  if (own_generator) options.generator = at::detail::createCPUGenerator(seed);
  LOCKSTEP_ASSIGN_OR_RETURN(RandomSampler sampler, RandomSampler::Create(size, options));
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    if (loader) NextNumber(options.generator);
    sampler.reset();
    if (epoch % 2 == 0) {
      PrintEpoch(sampler);
    } else if (stop > 0) {
      Print(sampler.next(stop).value());
    }
  }
  std::cout << NextNumber(options.generator) << '\n';
  return absl::OkStatus();
}

absl::Status PrintWeighted() {
  int64_t num_samples = 0, epoch = 0, number_of_weights = 0;
  WeightedSamplerOptions options;
  std::cin >> num_samples >> options.num_replicas >> options.rank >> options.replacement >> options.seed >> epoch >>
      number_of_weights;
  std::vector<double> weights(number_of_weights);
  for (double& weight : weights) std::cin >> weight;
  LOCKSTEP_ASSIGN_OR_RETURN(WeightedSampler sampler, WeightedSampler::Create(weights, num_samples, options));
  sampler.set_epoch(epoch);
  PrintEpoch(sampler);
  std::cout << '\n';
  return absl::OkStatus();
}

absl::Status Run() {
  for (std::string kind; std::cin >> kind;) {
    LOCKSTEP_RETURN_IF_ERROR(kind == "random" ? PrintRandom() : PrintWeighted());
  }
  return std::cin.eof() ? absl::OkStatus() : absl::InvalidArgumentError("a line of standard input is not as expected");
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << '\n';
  return status.ok() ? 0 : 1;
}
