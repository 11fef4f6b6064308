// A TorchScript module as a torch::nn module. So everything that takes a module takes it: DDP, DataParallel, ZeRO,
// checkpoints.

#ifndef LOCKSTEP_MODELS_SCRIPTED_SCRIPT_MODULE_H_
#define LOCKSTEP_MODELS_SCRIPTED_SCRIPT_MODULE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

// torch/script.h has the definition. A program that only trains the module does not need it.
namespace torch::jit {
struct Module;
}

namespace lockstep::models::scripted {

struct ScriptOptions {
  // The method that forward() runs, such as "training_step".
  std::string method = "forward";
  // True if LibTorch optimizes the code, as it does in Python by default. It records the first call of a method, and
  // then differentiates the code itself: gradients of tanh, sigmoid, silu and softplus are then rounded otherwise than
  // in the first call and outside TorchScript. If false, every call has the bits of the module before torch.jit.script,
  // and a run that continues from a checkpoint has the bits of the uninterrupted one.
  bool optimize = true;
};

// A torch::jit::Module with the interface of torch::nn::Module. ScriptModule, below, is its holder.
//
//   // Python: torch.jit.script(net).save("net.ts")
//   LOCKSTEP_ASSIGN_OR_RETURN(models::scripted::ScriptModule net, models::scripted::Load("net.ts"));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get()));                  // or dp::Wrap(net, options)
//   torch::optim::SGD optimizer(ddp.parameters(), 0.1);
//   torch::nn::functional::cross_entropy(ddp(images).toTensor(), labels).backward();
//   optimizer.step();
//   LOCKSTEP_RETURN_IF_ERROR(models::scripted::Save("trained.ts", ddp.module()));   // for torch.jit.load
//
// It refers to the torch::jit::Module, and does not copy it: both have the same tensors and training mode. Parameters,
// buffers and submodules have the names and the order of Python's named_parameters(), named_buffers() and
// named_children(), so buckets and state dicts equal Python's. Tied parameters stay tied. Submodules are
// ScriptModuleImpls too.
//
// If a method assigns a new tensor to a buffer (`self.mean = 0.9 * self.mean + ...`), the buffer takes over its data
// and stays the same at::Tensor. So a broadcast reaches it, as in Python. History of the assigned tensor is dropped.
//
// Replacing a tensor through the torch::jit::Module (setattr) is not noticed. Only one thread at a time may use it.
class ScriptModuleImpl : public torch::nn::Module {
 public:
  explicit ScriptModuleImpl(const torch::jit::Module& module, ScriptOptions options = {});
  ~ScriptModuleImpl() override;
  ScriptModuleImpl(const ScriptModuleImpl&) = delete;
  ScriptModuleImpl& operator=(const ScriptModuleImpl&) = delete;

  // Each argument is anything that converts to an IValue: tensors, numbers, strings, vectors, tuples, maps. The last
  // ones may be left out if they have a default. Throws the errors of Call().
  template <typename... Args>
  c10::IValue forward(Args&&... args) {
    std::vector<c10::IValue> inputs;
    inputs.reserve(sizeof...(args));
    (inputs.emplace_back(std::forward<Args>(args)), ...);
    return Call(options_.method, std::move(inputs));
  }

  // Runs a method, "forward" with its hooks. Of a wrapped module, this does not communicate. Throws StatusError with
  // NotFound, which lists the methods: it has none of this name. Throws StatusError with FailedPrecondition: the method
  // assigned a tensor to a parameter, or None to a buffer. Throws the exceptions of LibTorch's interpreter.
  c10::IValue Call(const std::string& method, std::vector<c10::IValue> inputs);

  const torch::jit::Module& jit() const { return *module_; }

  // A copy that shares no tensor with this module, as if it had been saved and loaded: attributes that are not tensors
  // are copied too, and the first call of its methods is recorded anew. Takes the memory of the saved file meanwhile.
  // Throws the exceptions of LibTorch if an attribute cannot be saved.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = std::nullopt) const override;

  // The mode of the TorchScript module. A frozen one (torch.jit.freeze) has none.
  void train(bool on = true) override;
  bool is_training() const noexcept override;

  void pretty_print(std::ostream& stream) const override;

 private:
  struct Assigned;
  struct Building;
  ScriptModuleImpl(const torch::jit::Module& module, ScriptOptions options, Building& building);
  void Register(Building& building);
  void TakeOverAssigned();

  const std::unique_ptr<torch::jit::Module> module_;
  const ScriptOptions options_;
  std::optional<size_t> training_;  // the slot
  // The tensors of this module and its submodules to which a method assigns.
  std::vector<Assigned> assigned_;
};

// Refers to a ScriptModuleImpl, as module holders do. Copies refer to the same module.
class ScriptModule : public torch::nn::ModuleHolder<ScriptModuleImpl> {
 public:
  using torch::nn::ModuleHolder<ScriptModuleImpl>::ModuleHolder;

  // See forward() of ScriptModuleImpl.
  template <typename... Args>
  c10::IValue operator()(Args&&... args) {
    return impl_->forward(std::forward<Args>(args)...);
  }
};

}  // namespace lockstep::models::scripted

#endif  // LOCKSTEP_MODELS_SCRIPTED_SCRIPT_MODULE_H_
