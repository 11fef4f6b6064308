// The parameters of a module, and the units that they form.

#ifndef LOCKSTEP_FSDP_INTERNAL_MODULE_UNITS_H_
#define LOCKSTEP_FSDP_INTERNAL_MODULE_UNITS_H_

#include <torch/nn/module.h>

#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/internal/kept_shards.h"
#include "lockstep/fsdp/internal/sharded_unit.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::internal {

// Returns each parameter once, under its first name. `keeps`: with KeptShards, so parameters may lie in one memory, such as
// the pages of an earlier group. Unimplemented, InvalidArgument: one cannot be sharded among the ranks of `group`, with these
// options, on its device; the error names it.
absl::StatusOr<std::vector<NamedTensor>> ParametersOf(const torch::nn::Module& module, const comm::ProcessGroup& group,
                                                      const Options& options, bool keeps);

struct ModuleUnits {
  std::vector<ShardedUnit> trained, frozen;
};

// The units are divided among `ranks`, and there are so many `replicas`. With `kept`, which may be null, the trained
// units have its shards, whose places are the pieces. InvalidArgument: no parameter requires gradients, or as
// PlanUnits(). FailedPrecondition: the kept shards belong to other parameters.
absl::StatusOr<ModuleUnits> UnitsOf(const std::vector<NamedTensor>& parameters, int ranks, int replicas,
                                    const Options& options, const KeptShards* kept);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_MODULE_UNITS_H_
