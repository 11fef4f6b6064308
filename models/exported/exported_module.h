// A program of torch.export as a torch::nn module. So everything that takes a module takes it: DDP, DataParallel, ZeRO,
// checkpoints.

#ifndef LOCKSTEP_MODELS_EXPORTED_EXPORTED_MODULE_H_
#define LOCKSTEP_MODELS_EXPORTED_EXPORTED_MODULE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/batch_norms_in_code.h"
#include "lockstep/base/non_persistent_buffers.h"

namespace lockstep::models::exported {

// A program and its tensors; see program.h.
struct Program;
class Interpreter;

// Inputs by the names of forward's arguments.
using NamedInputs = std::vector<std::pair<std::string, c10::IValue>>;

// An exported program with the interface of torch::nn::Module. ExportedModule, below, is its holder.
//
//   // Python: torch.export.save(torch.export.export(net, (images,)), "net.pt2")
//   LOCKSTEP_ASSIGN_OR_RETURN(models::exported::ExportedModule net, models::exported::Load("net.pt2"));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get()));                  // or dp::Wrap(net, options)
//   torch::optim::SGD optimizer(ddp.parameters(), 0.1);
//   torch::nn::functional::cross_entropy(ddp(images).toTensor(), labels).backward();
//   optimizer.step();
//   LOCKSTEP_RETURN_IF_ERROR(models::exported::Save("trained.pt2", ddp.module()));   // for torch.export.load
//
// Each node of the program calls its operator through LibTorch's dispatcher, which records autograd, so results and
// gradients have the bits of the Python module. Parameters, buffers and submodules have Python's names and order.
// Tied parameters stay tied. Buffers that Python keeps out of its state dict (persistent=False) are registered too, so
// that DDP broadcasts them, as in Python. State dicts do not have them. Constants are not registered.
//
// Random operators draw from LibTorch's default generators. Only one thread at a time may use the module, for a call, a
// change of mode or Save(). A copy by clone() is independent. to() moves parameters and buffers only: give Load() the
// device.
class ExportedModuleImpl : public torch::nn::Module, public NonPersistentBuffers, public BatchNormsInCode {
 public:
  // Throws StatusError with the errors of Load() that a node causes.
  explicit ExportedModuleImpl(std::shared_ptr<const Program> program);
  ~ExportedModuleImpl() override;
  ExportedModuleImpl(const ExportedModuleImpl&) = delete;
  ExportedModuleImpl& operator=(const ExportedModuleImpl&) = delete;

  // Each argument is anything that converts to an IValue: tensors, numbers, strings, vectors, tuples, maps. Throws the
  // errors of Call().
  template <typename... Args>
  c10::IValue forward(Args&&... args) {
    std::vector<c10::IValue> inputs;
    inputs.reserve(sizeof...(args));
    (inputs.emplace_back(std::forward<Args>(args)), ...);
    return Call(std::move(inputs));
  }

  // Runs the program. `inputs` are the positional arguments of the export, and may go on with its keyword arguments in
  // their order; `named` are further ones by name. An argument may be left out if the export recorded a constant, such
  // as None, for it. The result has the structure of the Python function's: a tensor, or tuples, lists and dicts of
  // them; another Python class is a dict if it has names for its parts, and else a tuple.
  //
  // Throws StatusError with InvalidArgument: an input is missing, unknown, or has another structure, type, rank or size
  // than the program was exported for; the error names the input. Throws the exceptions of the operators, after whose
  // text comes the node and its line of Python.
  c10::IValue Call(std::vector<c10::IValue> inputs, NamedInputs named = {});

  // A copy that shares no tensor with this module. With `device`, the program creates its tensors there, too.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = std::nullopt) const override;

  // Switches the flag of each dropout, batch normalisation and recurrent layer that the export recorded. Throws
  // StatusError with FailedPrecondition, and changes nothing: a node, which the error names, was exported for the other
  // mode alone. A branch that Python took because of the mode (if self.training) is not seen.
  void train(bool on = true) override;

  // Python's lists, which have a tied parameter once, under its first name. Through a reference to torch::nn::Module it
  // is listed under each of its names, as LibTorch does.
  std::vector<at::Tensor> parameters(bool recurse = true) const;
  torch::OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const;

  bool IsNonPersistent(const std::string& buffer) const override { return non_persistent_.count(buffer) > 0; }

  std::vector<std::string> BatchNorms() const override;

  void pretty_print(std::ostream& stream) const override;

  // The program with the values that its tensors had in the file.
  const Program& program() const { return *program_; }

 private:
  void Register();

  const std::shared_ptr<const Program> program_;
  const std::unique_ptr<Interpreter> interpreter_;
  std::set<std::string> non_persistent_;  // of the buffers that are not in a submodule
};

// Refers to an ExportedModuleImpl, as module holders do. Copies refer to the same module.
class ExportedModule : public torch::nn::ModuleHolder<ExportedModuleImpl> {
 public:
  using torch::nn::ModuleHolder<ExportedModuleImpl>::ModuleHolder;

  // See forward() of ExportedModuleImpl.
  template <typename... Args>
  c10::IValue operator()(Args&&... args) {
    return impl_->forward(std::forward<Args>(args)...);
  }
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_EXPORTED_MODULE_H_
