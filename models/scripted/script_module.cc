#include "lockstep/models/scripted/script_module.h"

#include <ATen/core/class_type.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <set>
#include <sstream>
#include <unordered_map>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::models::scripted {
namespace {

using Object = c10::intrusive_ptr<c10::ivalue::Object>;

// Attributes, as the class and the name.
using Attributes = std::set<std::pair<const c10::Type*, std::string>>;

void AddAssigned(const torch::jit::Block& block, Attributes& assigned) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::SetAttr) assigned.emplace(node->input(0)->type().get(), node->s(c10::attr::name));
    for (const torch::jit::Block* inner : node->blocks()) AddAssigned(*inner, assigned);
  }
}

// The attributes to which a method of the module or of its submodules assigns.
Attributes AssignedIn(const torch::jit::Module& root) {
  Attributes assigned;
  std::set<const c10::Type*> seen;
  for (const torch::jit::Module& module : root.modules()) {
    if (!seen.insert(module.type().get()).second) continue;
    for (torch::jit::Function* function : module.type()->methods()) {
      if (auto* graph = torch::jit::tryToGraphFunction(*function)) AddAssigned(*graph->graph()->block(), assigned);
    }
  }
  return assigned;
}

std::string ClassName(const torch::jit::Module& module) {
  return module.type()->name() ? module.type()->name()->name() : "ScriptModule";
}

}  // namespace

// A tensor to which a method assigns, and its place.
struct ScriptModuleImpl::Assigned {
  Object object;
  size_t slot;
  at::Tensor tensor;
  bool is_parameter;
  std::string name;
  // The value that the running method found in the slot.
  at::Tensor given = {};
};

struct ScriptModuleImpl::Building {
  Attributes assigned;
  // A submodule may be in several places.
  std::unordered_map<const c10::ivalue::Object*, std::shared_ptr<ScriptModuleImpl>> made;
};

ScriptModuleImpl::ScriptModuleImpl(const torch::jit::Module& module, ScriptOptions options)
    : torch::nn::Module(ClassName(module)),
      module_(std::make_unique<torch::jit::Module>(module)),
      options_(std::move(options)) {
  Building building{AssignedIn(module), {}};
  Register(building);
}

ScriptModuleImpl::ScriptModuleImpl(const torch::jit::Module& module, ScriptOptions options, Building& building)
    : torch::nn::Module(ClassName(module)),
      module_(std::make_unique<torch::jit::Module>(module)),
      options_(std::move(options)) {
  Register(building);
}

ScriptModuleImpl::~ScriptModuleImpl() = default;

void ScriptModuleImpl::Register(Building& building) {
  const Object object = module_->_ivalue();
  const c10::ClassTypePtr type = module_->type();
  training_ = type->findAttributeSlot("training");
  for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
    const std::string& name = type->getAttributeName(slot);
    const c10::IValue& value = object->getSlot(slot);
    if (type->getAttribute(slot)->is_module()) {
      std::shared_ptr<ScriptModuleImpl>& child = building.made[value.toObject().get()];
      if (!child) child.reset(new ScriptModuleImpl(value.toModule(), {"forward", options_.optimize}, building));
      register_module(name, child);
      for (const Assigned& inner : child->assigned_) {
        assigned_.push_back(inner);
        assigned_.back().name = absl::StrCat(name, ".", inner.name);
      }
    } else if (value.isTensor() && value.toTensor().defined() && (type->is_parameter(slot) || type->is_buffer(slot))) {
      const at::Tensor& tensor = value.toTensor();
      if (type->is_parameter(slot)) {
        register_parameter(name, tensor, tensor.requires_grad());
      } else {
        register_buffer(name, tensor);
      }
      if (building.assigned.count({type.get(), name}))
        assigned_.push_back({object, slot, tensor, type->is_parameter(slot), name});
    }
  }
}

c10::IValue ScriptModuleImpl::Call(const std::string& method, std::vector<c10::IValue> inputs) {
  if (!module_->find_method(method)) {
    std::vector<std::string> methods;
    for (const torch::jit::Method& one : module_->get_methods()) methods.push_back(one.name());
    ThrowIfError(absl::NotFoundError(absl::StrCat("the scripted module ", name(), " has no method \"", method,
                                                  "\"; its methods: ", absl::StrJoin(methods, ", "))));
  }
  for (Assigned& assigned : assigned_) {
    assigned.given = assigned.tensor.requires_grad() ? assigned.tensor : assigned.tensor.detach();
    assigned.object->setSlot(assigned.slot, assigned.given);
  }
  // Also after an error, the module has its own tensors.
  const auto restore = absl::MakeCleanup([this] {
    for (Assigned& assigned : assigned_) {
      assigned.object->setSlot(assigned.slot, assigned.tensor);
      assigned.given = at::Tensor();
    }
  });
  const torch::jit::GraphOptimizerEnabledGuard optimize(options_.optimize && torch::jit::getGraphExecutorOptimize());
  c10::IValue output = method == "forward" ? (*module_)(std::move(inputs)) : module_->get_method(method)(inputs);
  TakeOverAssigned();
  return output;
}

// The method computed with an alias of each buffer. Graphs may have saved the alias, so the buffer may now get other
// memory, and with it the version by which graphs notice writes.
void ScriptModuleImpl::TakeOverAssigned() {
  const c10::NoGradGuard no_grad;
  const c10::InferenceMode no_inference(false);
  for (Assigned& assigned : assigned_) {
    const c10::IValue& now = assigned.object->getSlot(assigned.slot);
    if (now.isTensor() && now.toTensor().is_same(assigned.given)) continue;
    if (assigned.is_parameter || !now.isTensor()) {
      ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
          "the scripted module ", name(), " assigned ", now.isTensor() ? "a tensor" : now.tagKind(), " to its ",
          assigned.is_parameter ? "parameter " : "buffer ", assigned.name, ": change it in place")));
    }
    const at::Tensor& value = now.toTensor();
    const at::Tensor data = value.is_inference() ? value.clone() : value.detach();
    assigned.tensor.set_data(data);
    torch::autograd::impl::set_version_counter(assigned.tensor, torch::autograd::impl::version_counter(data));
  }
}

// A copy by deepcopy() would share the code's recorded runs with this module, and replicas that run at once would
// record an arbitrary one of them.
std::shared_ptr<torch::nn::Module> ScriptModuleImpl::clone(const std::optional<c10::Device>& device) const {
  std::stringstream bytes;
  module_->save(bytes);
  return std::make_shared<ScriptModuleImpl>(torch::jit::load(bytes, device), options_);
}

void ScriptModuleImpl::train(bool on) {
  if (training_) module_->_ivalue()->setSlot(*training_, on);
  torch::nn::Module::train(on);
}

bool ScriptModuleImpl::is_training() const noexcept {
  if (!training_) return torch::nn::Module::is_training();
  return module_->_ivalue()->getSlot(*training_).toBool();
}

void ScriptModuleImpl::pretty_print(std::ostream& stream) const { stream << name(); }

}  // namespace lockstep::models::scripted
