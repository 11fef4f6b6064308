// The bytes of a rank: an estimate before training, and a count afterwards. README.md has the formulas.
//
//   LOG(INFO) << "estimated: " << fsdp::EstimateMemory(net, /*states=*/2).ToString();  // AdamW has two
//   ...
//   LOCKSTEP_ASSIGN_OR_RETURN(const fsdp::MemoryReport counted, fsdp::CountMemory(net, optimizer));
//   LOG(INFO) << "counted: " << counted.ToString();

#ifndef LOCKSTEP_FSDP_MEMORY_REPORT_H_
#define LOCKSTEP_FSDP_MEMORY_REPORT_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/internal/sharded_access.h"

namespace lockstep::fsdp {

struct MemoryReport {
  // "rank 1: shards 12.5 MiB, gradients 12.5 MiB, optimizer 25.0 MiB, units 12.5 MiB, at peak 75.0 MiB". With shared
  // pages, "shared pages 25.0 MiB" in place of shards, or beside them if these are of another dtype or a World's.
  std::string ToString() const;

  int rank = 0;
  // This rank's part of the parameters, frozen ones too, of private memory.
  int64_t shards = 0;
  // With Residency::kSharedPages, all parameters. The ranks of a host have them in common.
  int64_t pages = 0;
  // The gradients of shards, in the dtype of their sum over the ranks, and, if it is another one, in the shards' too.
  int64_t gradients = 0;
  // The optimizer's state.
  int64_t optimizer = 0;
  // Buffers for whole units: gathered parameters, and gradients that the ranks reduce.
  int64_t units = 0;
  // Estimated: all of these that exist at once, with the gradients of whole units. Activations, the module's buffers, the frozen
  // parameters of an elastic::ShardedModel, and gradients under NoSync are left out.
  // Counted: the most resident memory of the process up to now, with all that it has, and pages that other ranks use too.
  // If the parameters are on a GPU, the most bytes of tensors there; 0 with LibTorch before 2.9.
  int64_t peak = 0;
};

namespace internal {

MemoryReport EstimateMemory(const ShardedModule& sharded, int states);
absl::StatusOr<MemoryReport> CountMemory(const ShardedModule& sharded, const torch::optim::Optimizer& optimizer);

}  // namespace internal

// After Wrap(). `states`: the tensors of the optimizer's state that are as large as a parameter, such as 2 for AdamW, 1
// for SGD with momentum. The result is this rank's own. No rank waits for another.
template <typename Net>
MemoryReport EstimateMemory(const FullyShardedDataParallel<Net>& net, int states) {
  return internal::EstimateMemory(internal::ShardedAccess::Of(net), states);
}

// After a step, with its optimizer over shards(). The result is this rank's own. No rank waits for another.
// Unimplemented: the optimizer is of a type that checkpoint::OptimizerStateDict() does not take.
template <typename Net>
absl::StatusOr<MemoryReport> CountMemory(const FullyShardedDataParallel<Net>& net,
                                         const torch::optim::Optimizer& optimizer) {
  return internal::CountMemory(internal::ShardedAccess::Of(net), optimizer);
}

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_MEMORY_REPORT_H_
