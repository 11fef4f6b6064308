// Finds parameters that a wrapper does not average, because they were not there or were frozen when it was made.

#ifndef LOCKSTEP_DDP_INTERNAL_MODULE_CHANGES_H_
#define LOCKSTEP_DDP_INTERNAL_MODULE_CHANGES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
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
//   ModuleChanges changes(*module, "ddp::Wrap", options.parameters_to_ignore);
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(changes.Look(*module));   // in each forward
class ModuleChanges {
 public:
  // `wrap`: the function that wraps the module. The parameters named in `ignored`, which are its parameters_to_ignore if
  // it has them, may change.
  ModuleChanges(const torch::nn::Module& module, const char* wrap,
                std::optional<std::set<std::string>> ignored = std::nullopt);

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
  bool Ignores(const std::string& name) const { return ignored_ && ignored_->count(name) > 0; }
  absl::Status NotAveraged(const std::string& name, const std::string& what) const;

  const char* const wrap_;
  const std::optional<std::set<std::string>> ignored_;
  std::vector<Known> known_;                    // in the order of a walk over the tree
  std::vector<NamedTensor> frozen_;             // without ignored ones
  std::set<const at::TensorImpl*> parameters_;  // all that were seen
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_MODULE_CHANGES_H_
