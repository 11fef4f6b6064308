#include "lockstep/models/exported/exported_module.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <string>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/exported/interpreter.h"
#include "lockstep/models/exported/modes.h"
#include "lockstep/models/exported/program.h"

namespace lockstep::models::exported {
namespace {

// A submodule of the Python module: names, parameters and buffers, without code.
class Part : public torch::nn::Module, public NonPersistentBuffers {
 public:
  explicit Part(const std::string& name) : torch::nn::Module(name) {}

  bool IsNonPersistent(const std::string& buffer) const override { return non_persistent.count(buffer) > 0; }

  std::set<std::string> non_persistent;
};

std::unique_ptr<Interpreter> MakeInterpreter(const std::shared_ptr<const Program>& program) {
  absl::StatusOr<std::unique_ptr<Interpreter>> made = Interpreter::Create(program);
  ThrowIfError(made.status());
  return *std::move(made);
}

// Finds or makes the submodule with this dotted name.
torch::nn::Module& PartOf(torch::nn::Module& root, const std::string& name,
                          absl::flat_hash_map<std::string, torch::nn::Module*>& parts) {
  if (name.empty()) return root;
  if (const auto found = parts.find(name); found != parts.end()) return *found->second;
  const size_t dot = name.rfind('.');
  torch::nn::Module& parent = PartOf(root, dot == std::string::npos ? "" : name.substr(0, dot), parts);
  const std::string last = name.substr(dot == std::string::npos ? 0 : dot + 1);
  const std::shared_ptr<Part> part = parent.register_module(last, std::make_shared<Part>(last));
  parts[name] = part.get();
  return *part;
}

}  // namespace

ExportedModuleImpl::ExportedModuleImpl(std::shared_ptr<const Program> program)
    : torch::nn::Module("ExportedModule"), program_(std::move(program)), interpreter_(MakeInterpreter(program_)) {
  Register();
  torch::nn::Module::train(interpreter_->is_training());
}

ExportedModuleImpl::~ExportedModuleImpl() = default;

void ExportedModuleImpl::Register() {
  const ExportedGraph& graph = *program_->graph;
  absl::flat_hash_map<std::string, torch::nn::Module*> parts;
  for (const std::string& name : graph.modules) {
    // A module that was called again has another entry, name@1.
    if (name.find('@') == std::string::npos) PartOf(*this, name, parts);
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const InputSpec& input = graph.inputs[i];
    if (input.kind != InputSpec::Kind::kParameter && input.kind != InputSpec::Kind::kBuffer) continue;
    const size_t dot = input.target.rfind('.');
    torch::nn::Module& part = PartOf(*this, dot == std::string::npos ? "" : input.target.substr(0, dot), parts);
    const std::string name = input.target.substr(dot == std::string::npos ? 0 : dot + 1);
    const at::Tensor& tensor = program_->tensors[i];
    if (input.kind == InputSpec::Kind::kParameter) {
      part.register_parameter(name, tensor, tensor.requires_grad());
    } else {
      part.register_buffer(name, tensor);
      if (!input.persistent) (&part == this ? non_persistent_ : static_cast<Part&>(part).non_persistent).insert(name);
    }
  }
}

c10::IValue ExportedModuleImpl::Call(std::vector<c10::IValue> inputs, NamedInputs named) {
  return interpreter_->Call(std::move(inputs), std::move(named));
}

std::shared_ptr<torch::nn::Module> ExportedModuleImpl::clone(const std::optional<c10::Device>& device) const {
  const c10::NoGradGuard no_grad;
  auto program = std::make_shared<Program>(*program_);
  if (device) program->device = device;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> copies;
  for (at::Tensor& tensor : program->tensors) {
    if (!tensor.defined()) continue;
    at::Tensor& copy = copies[tensor.unsafeGetTensorImpl()];
    if (!copy.defined()) {
      copy = device ? tensor.detach().to(*device, /*non_blocking=*/false, /*copy=*/true) : tensor.detach().clone();
      copy.set_requires_grad(tensor.requires_grad());
    }
    tensor = copy;
  }
  auto made = std::make_shared<ExportedModuleImpl>(std::move(program));
  if (made->is_training() != is_training()) made->train(is_training());
  return made;
}

void ExportedModuleImpl::train(bool on) {
  ThrowIfError(interpreter_->SetTraining(on));
  torch::nn::Module::train(on);
}

torch::OrderedDict<std::string, at::Tensor> ExportedModuleImpl::named_parameters(bool recurse) const {
  absl::flat_hash_set<const c10::TensorImpl*> seen;
  torch::OrderedDict<std::string, at::Tensor> named;
  for (const auto& parameter : torch::nn::Module::named_parameters(recurse)) {
    if (seen.insert(parameter.value().unsafeGetTensorImpl()).second) named.insert(parameter.key(), parameter.value());
  }
  return named;
}

std::vector<at::Tensor> ExportedModuleImpl::parameters(bool recurse) const {
  return named_parameters(recurse).values();
}

std::vector<std::string> ExportedModuleImpl::BatchNorms() const { return BatchNormsOf(*program_->graph); }

void ExportedModuleImpl::pretty_print(std::ostream& stream) const { stream << name(); }

}  // namespace lockstep::models::exported
