#include "lockstep/ddp/internal/module_changes.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// Without the copies that the public functions make.
struct Parameters : torch::nn::Module {
  static size_t Count(const torch::nn::Module& module) { return (module.*(&Parameters::parameters_)).size(); }
};

absl::Status NotAveraged(const std::string& name, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter ", name, " ", what,
      ", so its gradient would not be averaged: wrap the module again, or name it in parameters_to_ignore"));
}

}  // namespace

ModuleChanges::ModuleChanges(const torch::nn::Module& module, std::set<std::string> ignored)
    : ignored_(std::move(ignored)) {
  Walk(module, known_);
  for (const auto& parameter : module.named_parameters()) {
    const bool is_new = parameters_.insert(parameter.value().unsafeGetTensorImpl()).second;
    if (is_new && !parameter.value().requires_grad() && ignored_.count(parameter.key()) == 0)
      frozen_.push_back({parameter.key(), parameter.value()});
  }
}

void ModuleChanges::Walk(const torch::nn::Module& module, std::vector<Known>& known) {
  known.push_back({&module, Parameters::Count(module)});
  for (const auto& child : module.children()) Walk(*child, known);
}

bool ModuleChanges::Knows(const torch::nn::Module& module, size_t& next) const {
  if (next == known_.size() || known_[next].module != &module) return false;
  if (known_[next++].parameters != Parameters::Count(module)) return false;
  const auto children = module.children();
  return std::all_of(children.begin(), children.end(), [&](const auto& child) { return Knows(*child, next); });
}

absl::Status ModuleChanges::Look(const torch::nn::Module& module) {
  size_t next = 0;
  if (!Knows(module, next) || next != known_.size()) LOCKSTEP_RETURN_IF_ERROR(TakeNewParameters(module));
  for (const NamedTensor& parameter : frozen_) {
    if (parameter.tensor.requires_grad())
      return NotAveraged(parameter.name, "requires gradients, which it did not when ddp::Wrap was called");
  }
  return absl::OkStatus();
}

absl::Status ModuleChanges::TakeNewParameters(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    if (parameters_.count(parameter.value().unsafeGetTensorImpl()) > 0 || ignored_.count(parameter.key()) > 0) continue;
    if (parameter.value().requires_grad()) return NotAveraged(parameter.key(), "was registered after ddp::Wrap");
    parameters_.insert(parameter.value().unsafeGetTensorImpl());
    frozen_.push_back({parameter.key(), parameter.value()});
  }
  known_.clear();
  Walk(module, known_);
  return absl::OkStatus();
}

}  // namespace lockstep::ddp::internal
