#ifndef LOCKSTEP_DDP_INTERNAL_CHECK_OPTIONS_H_
#define LOCKSTEP_DDP_INTERNAL_CHECK_OPTIONS_H_

#include <vector>

#include "absl/status/status.h"
#include "lockstep/ddp/internal/parameter_check.h"
#include "lockstep/ddp/internal/reducer.h"
#include "lockstep/ddp/options.h"

namespace torch::nn {
class Module;
}

namespace lockstep::ddp::internal {

// InvalidArgument for options that are out of range, contradict each other, or do not fit the module. `trained`: the
// parameters that are to be reduced. `ranks`: how many there are.
absl::Status CheckOptions(const Options& options, const torch::nn::Module& module,
                          const std::vector<NamedTensor>& trained, int ranks);

// PyTorch 2.11's limits for buckets, and the other options of the reducer. The caller sets delay_until.
ReducerOptions ToReducerOptions(const Options& options);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_CHECK_OPTIONS_H_
