#ifndef LOCKSTEP_DDP_OPTIONS_H_
#define LOCKSTEP_DDP_OPTIONS_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"

namespace lockstep::ddp {

// In which dtypes a step computes, where not in the parameters' own. Only floating-point tensors are cast.
struct MixedPrecision {
  // Of parameters and inputs in forward and backward. The module's own parameters, which the optimizer steps, and their
  // gradients after backward keep their dtype.
  absl::optional<c10::ScalarType> param_dtype;

  // In which gradients are reduced. Not set: param_dtype, or else the parameters' own.
  absl::optional<c10::ScalarType> reduce_dtype;

  // Of buffers, from Wrap() on.
  absl::optional<c10::ScalarType> buffer_dtype;
};

// What happens when a gradient holds a NaN or an infinity. Every rank does the same in the same step.
enum class NonFinite {
  kIgnore,  // nothing is looked for
  kReport,  // the step goes on; StepStatistics names parameter and rank
  kThrow,   // backward throws DataLoss naming parameter and rank; what the gradients hold then is not defined
};

// The names, meanings and defaults are those of torch.nn.parallel.DistributedDataParallel, but where noted.
struct Options {
  // The device of a module on one GPU: inputs are moved there. Empty for a module on the CPU or on several devices.
  std::vector<c10::Device> device_ids;

  // Where the output is moved to; not set: it stays. Only with device_ids.
  absl::optional<c10::Device> output_device;

  // Broadcast buffers (such as BatchNorm's running statistics) from rank 0 before each forward.
  bool broadcast_buffers = true;

  // Give every rank rank 0's parameters and buffers when wrapping. Without it they must be equal already.
  bool init_sync = true;

  // Gradients are reduced in buckets of about this many MiB. Not set: 25, with a first bucket of 1 MiB so that reducing
  // starts early.
  absl::optional<double> bucket_cap_mb;

  // The limits, in MiB, of the first, second, ... bucket; the last serves all further ones. Not together with
  // bucket_cap_mb. Set, they hold from the first step on.
  std::vector<double> bucket_cap_mb_list;

  // Parameters that the loss does not depend on, on this rank in this step, count as having a gradient of zero; one
  // that no rank uses keeps the gradient it had. Costs a walk over the autograd graph and a small all-reduce a step.
  bool find_unused_parameters = false;

  // The same parameters are used, and equally often, in each step: unused ones and ones whose gradient arrives in
  // several parts (checkpointed recomputation) are found in the first step.
  bool static_graph = false;

  // With find_unused_parameters or static_graph: a bucket all of whose parameters are unused on all ranks is not
  // reduced.
  bool skip_all_reduce_unused_params = false;

  // Gradients live in the buckets: no copy back after reducing, and no memory beside them.
  bool gradient_as_bucket_view = false;

  // Names of parameters and buffers that stay each rank's own: neither broadcast nor reduced.
  std::set<std::string> parameters_to_ignore;

  // Names of parameters that are not reduced in buckets but together, in one all-reduce that starts when the gradient
  // of the parameter named param_to_hook_all_reduce is computed and is waited for at the end of backward. That
  // parameter's gradient must come after theirs. Both or neither must be set. Not under Join.
  std::vector<std::string> delay_all_reduce_named_params;
  std::string param_to_hook_all_reduce;

  absl::optional<MixedPrecision> mixed_precision;

  // Ours: see NonFinite.
  NonFinite non_finite = NonFinite::kIgnore;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_OPTIONS_H_
