#ifndef LOCKSTEP_DDP_OPTIONS_H_
#define LOCKSTEP_DDP_OPTIONS_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::ddp {

// The dtypes in which a step computes. An unset dtype means no cast. Only floating-point tensors are cast.
struct MixedPrecision {
  // For parameters and inputs in forward and backward. The module's own parameters, which the optimizer steps, keep
  // their dtype, and so do their gradients after backward.
  std::optional<c10::ScalarType> param_dtype;

  // For reducing gradients. Default: param_dtype, or the parameters' dtype.
  std::optional<c10::ScalarType> reduce_dtype;

  // For buffers, from Wrap() on.
  std::optional<c10::ScalarType> buffer_dtype;
};

// The action if a gradient contains a NaN or an infinity. Every rank does the same in the same step.
enum class NonFinite {
  kIgnore,  // no check
  kReport,  // the step continues; StepStatistics names the parameter and the rank
  kThrow,   // backward throws DataLoss with parameter and rank; gradients are then undefined
};

// Names, meanings and defaults are the same as in torch.nn.parallel.DistributedDataParallel, except where noted.
struct Options {
  // The device of a module on one GPU. Inputs are moved there. Empty for a module on the CPU or on several devices.
  std::vector<c10::Device> device_ids;

  // The device to which the output is moved. Default: it is not moved. Only with device_ids.
  std::optional<c10::Device> output_device;

  // Broadcasts buffers (such as BatchNorm's running statistics) from rank 0 before each forward.
  bool broadcast_buffers = true;

  // Gives every rank rank 0's parameters and buffers when wrapping. If false, they must already be equal.
  bool init_sync = true;

  // The approximate size of a bucket of gradients in MiB. Default: 25, with a first bucket of 1 MiB so that reducing
  // starts early.
  std::optional<double> bucket_cap_mb;

  // The limits, in MiB, of the first, second, ... bucket. The last applies to all further ones. Cannot be set together
  // with bucket_cap_mb. If set, the limits apply from the first step on.
  std::vector<double> bucket_cap_mb_list;

  // Parameters on which the loss does not depend, on this rank in this step, count as having a gradient of zero. A
  // parameter that no rank uses keeps its previous gradient. Costs a walk over the autograd graph and a small
  // all-reduce each step.
  bool find_unused_parameters = false;

  // Promises that each step uses the same parameters, equally often. Unused parameters, and parameters whose gradient
  // arrives in several parts (checkpointed recomputation), are then found in the first step.
  bool static_graph = false;

  // With find_unused_parameters or static_graph: does not reduce a bucket if all its parameters are unused on all
  // ranks.
  bool skip_all_reduce_unused_params = false;

  // Gradients are views of the buckets: no copy back after reducing, and no additional memory.
  bool gradient_as_bucket_view = false;

  // Names of parameters and buffers that are neither broadcast nor reduced.
  std::set<std::string> parameters_to_ignore;

  // Names of parameters that are reduced together in one all-reduce instead of in buckets. It starts when the gradient
  // of the parameter named param_to_hook_all_reduce is computed, and backward waits for it at its end. That gradient
  // must come after theirs. Set both or neither. Not under Join.
  std::vector<std::string> delay_all_reduce_named_params;
  std::string param_to_hook_all_reduce;

  std::optional<MixedPrecision> mixed_precision;

  // Not in PyTorch: see NonFinite.
  NonFinite non_finite = NonFinite::kIgnore;

  // Not in PyTorch. If positive, training gives the same bits on any number of ranks up to this one: see
  // DistributedDataParallel::VirtualRanks(). Must be at least the number of ranks, and the same on every rank and
  // for all runs that are to agree. Needs broadcast_buffers if there are buffers, unless init_sync is false too: then
  // the program must give all ranks rank 0's buffers after each step, as elastic::World::Commit() does.
  // parameters_to_ignore must not name a parameter that is trained, or a buffer that forward changes. See
  // RegisterHook() for communication hooks.
  int virtual_ranks = 0;

  // With virtual_ranks: the seed of random numbers in forward, such as dropout's. The same on every rank. For the
  // initial parameters call torch::manual_seed() before you make the module.
  int64_t virtual_seed = 0;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_OPTIONS_H_
