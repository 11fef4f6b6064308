// Measures DistributedSampler on rank 0 of 8 and prints a JSON line a measurement. Part of tools/bench:compare; by
// itself:
//
//   ./bazelw run //tools/bench:sampler -- [--case=first_index,epoch] [--repeat=9]

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "nlohmann/json.hpp"

DEFINE_string(case, "first_index,epoch,feistel_first_index,feistel_index,feistel_state", "which to measure");
DEFINE_int32(repeat, 9, "how often; figures are medians");

namespace lockstep {
namespace {

using ::lockstep::sampler::DistributedSampler;
using ::lockstep::sampler::Permutation;

constexpr int64_t kImageNet = 1281167;
constexpr int64_t kBillion = 1000000000;
constexpr int64_t kBatch = 256;
constexpr int64_t kLongRun = 4000000;

absl::StatusOr<DistributedSampler> MakeSampler(int64_t size, Permutation permutation) {
  sampler::DistributedSamplerOptions options;
  options.num_replicas = 8;
  options.permutation = permutation;
  return DistributedSampler::Create(size, options);
}

// The median of what `work` takes in epochs 1, 2, ..., in seconds.
double Measure(DistributedSampler& sampler, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int epoch = 1; epoch <= FLAGS_repeat; ++epoch) {
    sampler.set_epoch(epoch);
    const absl::Time start = absl::Now();
    work();
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// Returns a checksum of indices in their order; the peer's must be the same.
uint64_t ChecksumOf(const std::vector<int64_t>& indices) {
  uint64_t sum = 0;
  for (size_t i = 0; i < indices.size(); ++i) sum += (i + 1) * indices[i];
  return sum;
}

// A training loop's first index of an epoch.
nlohmann::json FirstIndex(DistributedSampler& sampler) {
  size_t first = 0;
  const double seconds = Measure(sampler, [&] {
    sampler.reset();
    first = sampler.next(1)->front();
  });
  return {{"seconds", seconds}, {"checksum", first}};
}

nlohmann::json Epoch(DistributedSampler& sampler) {
  std::vector<int64_t> indices;
  const double seconds = Measure(sampler, [&] { indices = sampler.Indices(); });
  return {{"seconds", seconds}, {"checksum", ChecksumOf(indices)}};
}

nlohmann::json LongRun(DistributedSampler& sampler) {
  const double seconds = Measure(sampler, [&] {
    sampler.reset();
    for (int64_t taken = 0; taken < kLongRun; taken += kBatch) sampler.next(kBatch);
  });
  return {{"seconds", seconds / kLongRun}};
}

size_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Measures what a sampler holds in the middle of an epoch.
absl::StatusOr<nlohmann::json> State(int64_t size, Permutation permutation) {
  const size_t before = HeapBytes();
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler sampler, MakeSampler(size, permutation));
  sampler.next(1);
  return nlohmann::json({{"bytes", sizeof(sampler) + HeapBytes() - before}});
}

absl::StatusOr<nlohmann::json> MeasureCase(const std::string& name) {
  if (name == "feistel_state") return State(kBillion, Permutation::kFeistel);
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler torch, MakeSampler(kImageNet, Permutation::kTorch));
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler feistel, MakeSampler(kBillion, Permutation::kFeistel));
  if (name == "first_index") return FirstIndex(torch);
  if (name == "epoch") return Epoch(torch);
  if (name == "feistel_first_index") return FirstIndex(feistel);
  return LongRun(feistel);
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"repeat", static_cast<double>(FLAGS_repeat), 1, 10000}}));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> cases,
      FlagItems("case", FLAGS_case, {"first_index", "epoch", "feistel_first_index", "feistel_index", "feistel_state"}));
  Progress progress("sampler");
  for (const std::string& name : cases) {
    progress.Doing(name);
    LOCKSTEP_ASSIGN_OR_RETURN(nlohmann::json line, MeasureCase(name));
    line["case"] = name;
    std::cout << line << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times DistributedSampler on rank 0 of 8 and prints a JSON line a measurement.

  sampler --case=first_index,epoch --repeat=9
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "sampler: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
