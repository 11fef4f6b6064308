// The parameters that a rank's ShardedOptimizer steps.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_SHARD_H_
#define LOCKSTEP_ELASTIC_INTERNAL_SHARD_H_

#include <torch/optim/optimizer.h>

#include <vector>

namespace lockstep::elastic::internal {

using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

struct Shard {
  // True for each parameter whose state the rank keeps, by param group and place in it. Empty: it keeps all.
  std::vector<bool> keeps;

  // `groups` with these parameters only, and copies of their options. FailedPrecondition, thrown as StatusError: the
  // optimizer has got or lost parameters.
  ParamGroups Of(const ParamGroups& groups) const;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_SHARD_H_
