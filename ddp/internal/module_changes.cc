#include "lockstep/ddp/internal/module_changes.h"

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {
struct Members;
}  // namespace
}  // namespace lockstep::ddp::internal

namespace torch::nn {

// Reads a module's members without the copies that its public functions make. Module has Cloneable as a friend.
template <>
class Cloneable<lockstep::ddp::internal::Members> {
 public:
  static size_t NumParameters(const Module& module) { return module.parameters_.size(); }
  static const OrderedDict<std::string, std::shared_ptr<Module>>& Children(const Module& module) {
    return module.children_;
  }
};

}  // namespace torch::nn

namespace lockstep::ddp::internal {
namespace {

using Of = torch::nn::Cloneable<Members>;

}  // namespace

ModuleChanges::ModuleChanges(const torch::nn::Module& module, const char* wrap,
                             std::optional<std::set<std::string>> ignored)
    : wrap_(wrap), ignored_(std::move(ignored)) {
  Walk(module, known_);
  for (const auto& parameter : module.named_parameters()) {
    const bool is_new = parameters_.insert(parameter.value().unsafeGetTensorImpl()).second;
    if (is_new && !parameter.value().requires_grad() && !Ignores(parameter.key()))
      frozen_.push_back({parameter.key(), parameter.value()});
  }
}

absl::Status ModuleChanges::NotAveraged(const std::string& name, const std::string& what) const {
  return absl::FailedPreconditionError(absl::StrCat("parameter ", name, " ", what,
                                                    ", so its gradient would not be averaged: wrap the module again",
                                                    ignored_ ? ", or name it in parameters_to_ignore" : ""));
}

void ModuleChanges::Walk(const torch::nn::Module& module, std::vector<Known>& known) {
  known.push_back({&module, Of::NumParameters(module)});
  for (const auto& child : Of::Children(module)) Walk(*child.value(), known);
}

bool ModuleChanges::Knows(const torch::nn::Module& module, size_t& next) const {
  if (next == known_.size() || known_[next].module != &module) return false;
  if (known_[next++].parameters != Of::NumParameters(module)) return false;
  const auto& children = Of::Children(module);
  return std::all_of(children.begin(), children.end(), [&](const auto& child) { return Knows(*child.value(), next); });
}

absl::Status ModuleChanges::Look(const torch::nn::Module& module) {
  size_t next = 0;
  if (!Knows(module, next) || next != known_.size()) LOCKSTEP_RETURN_IF_ERROR(TakeNewParameters(module));
  for (const NamedTensor& parameter : frozen_) {
    if (parameter.tensor.requires_grad())
      return NotAveraged(parameter.name,
                         absl::StrCat("requires gradients, which it did not when ", wrap_, " was called"));
  }
  return absl::OkStatus();
}

absl::Status ModuleChanges::TakeNewParameters(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    if (parameters_.count(parameter.value().unsafeGetTensorImpl()) > 0 || Ignores(parameter.key())) continue;
    if (parameter.value().requires_grad())
      return NotAveraged(parameter.key(), absl::StrCat("was registered after ", wrap_));
    parameters_.insert(parameter.value().unsafeGetTensorImpl());
    frozen_.push_back({parameter.key(), parameter.value()});
  }
  known_.clear();
  Walk(module, known_);
  return absl::OkStatus();
}

}  // namespace lockstep::ddp::internal
