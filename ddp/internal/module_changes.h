// Finds parameters that a wrapper does not average, because they were not there or were frozen when it was made.

#ifndef LOCKSTEP_DDP_INTERNAL_MODULE_CHANGES_H_
#define LOCKSTEP_DDP_INTERNAL_MODULE_CHANGES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/ddp/internal/parameter_check.h"

namespace torch::nn {
class Module;
}

namespace lockstep::ddp::internal {

// Knows the modules of a tree, the number of each one's parameters, and the frozen parameters.
//
//   ModuleChanges changes(*module, options.parameters_to_ignore);
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(changes.Look(*module));   // in each forward
class ModuleChanges {
 public:
  // The parameters named in `ignored` may change.
  ModuleChanges(const torch::nn::Module& module, std::set<std::string> ignored);

  // FailedPrecondition if a parameter requires gradients that did not, or that was registered since: the error names
  // it. It costs a walk over the modules, without copies and allocations.
  absl::Status Look(const torch::nn::Module& module);

 private:
  struct Known {
    const torch::nn::Module* module;
    size_t parameters;  // without its children's
  };

  static void Walk(const torch::nn::Module& module, std::vector<Known>& known);
  bool Knows(const torch::nn::Module& module, size_t& next) const;
  absl::Status TakeNewParameters(const torch::nn::Module& module);

  const std::set<std::string> ignored_;
  std::vector<Known> known_;                    // in the order of a walk over the tree
  std::vector<NamedTensor> frozen_;             // without ignored ones
  std::set<const at::TensorImpl*> parameters_;  // all that were seen
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_MODULE_CHANGES_H_
