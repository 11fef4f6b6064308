// The base of the optimizers in this folder.

#ifndef LOCKSTEP_OPTIM_OPTIMIZER_H_
#define LOCKSTEP_OPTIM_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/optim/internal/program.h"
#include "lockstep/optim/options.h"

namespace lockstep::optim {

// An optimizer of Python's torch.optim as a torch::optim::Optimizer, so all code that takes one takes these: schedulers,
// ZeroRedundancyOptimizer, OverlappedOptimizer, elastic::World, GradScaler, checkpoint::OptimizerStateDict(). Options,
// defaults, modes and results are PyTorch 2.11's to the bit. Options are chained as LibTorch's:
//
//   optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-3).betas({0.9, 0.95}).maximize(true));
//   loss.backward();
//   optimizer.step();
//
// Modes, as in Python: `foreach` and `fused` choose how a step is computed. Without them, parameters on GPUs are stepped
// by at::_foreach_*, and others by a loop whose results depend neither on an element's place nor on the number of
// threads. On CPUs, the loop and `foreach` give the same bits for float and double. `fused` calls ATen's kernel, whose
// results differ from both, and on CPUs depend on an element's place and on the instruction set.
//
// Constructors throw c10::Error, with Python's words, if an option is out of range, a parameter is not a leaf, or a
// parameter occurs twice. So does step() for gradients or devices that the optimizer does not support, and
// for a learning rate that has become NaN, with which Python steps. Each rank has its
// own optimizer, and nothing is sent. Not thread-safe.
class Optimizer : public torch::optim::Optimizer {
 public:
  // Computes the closure's loss with gradients, if there is a closure, and then steps every parameter that has a
  // gradient. Returns the loss, or an undefined tensor.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Python's name: "AdamW".
  virtual const char* name() const = 0;
  // The keys of a parameter's state, in the order of State::tensors. A count of steps is the first, "step".
  virtual const std::vector<const char*>& state_keys() const = 0;
  // True if a parameter has state from the construction on, rather than from its first step.
  virtual bool state_from_the_start() const { return false; }

  // Returns the state that a parameter of a group with these options begins with.
  std::unique_ptr<State> NewState(const at::Tensor& parameter, const Options& options) const;

  // True if the kernels of all groups unscale gradients themselves (`fused`).
  bool StepSupportsAmpScaling() const;
  // For the next step only, which must be fused: gradients are divided by `grad_scale`, unless it is undefined, and
  // nothing is stepped if `found_inf` is not 0. Both are float tensors of one element.
  void SetGradScale(at::Tensor grad_scale, at::Tensor found_inf);

 protected:
  // To add an optimizer, derive its options from CloneableOptions and the optimizer from OptimizerOf. Override name(),
  // state_keys(), InitState() and Write(), and what Python's optimizer has besides. Add a row to optim/peer.
  Optimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups, std::unique_ptr<Options> defaults);

  // Parameters of one group, device and dtype that have gradients. `states` are by key, then by parameter.
  struct Batch {
    std::vector<at::Tensor> parameters, gradients;
    std::vector<std::vector<at::Tensor>> states;
    std::optional<at::Tensor> grad_scale, found_inf;
  };

  // Makes the state of a parameter that has none, in `state.tensors`. "step" is made by the caller.
  virtual void InitState(const at::Tensor& parameter, const Options& options, State& state) const;
  // Sees the parameters of a group that have gradients, before the first of them is stepped. Throws if one is not supported.
  virtual void BeginGroup(const Options& options, const std::vector<at::Tensor>& parameters);
  // Writes a step. `step` counts from 1, and `foreach` is true if Python's multi-tensor function is to be followed.
  virtual void Write(const Options& options, const State& state, double step, bool foreach,
                     internal::Program& program) const;
  // Sets what only the next step reads, after a program has run.
  virtual void Finish(const Options& options, const State& state, bool foreach) const;
  // Steps by ATen's kernel. The counts are those after the step.
  virtual void Fused(const Options& options, Batch& batch) const;
  // Throws if a sparse gradient is not supported.
  virtual void CheckSparse(const Options& options) const;
  // Steps a parameter whose gradient is sparse, and returns true. By default, returns false: the program is run.
  virtual bool StepSparse(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                          State& state) const;
  // Steps a parameter whose gradient is dense in another way than by a program.
  virtual bool StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                         State& state) const;
  // True if Python's multi-tensor function steps complex numbers as pairs of real ones.
  virtual bool complex_as_real() const { return true; }
  // False if a learning rate in a tensor excludes `foreach`.
  virtual bool foreach_takes_tensor_rate() const { return false; }

  // The state of `parameter`, made if there is none.
  State& StateOf(const at::Tensor& parameter, const Options& options);

 private:
  struct Member {
    at::Tensor parameter, gradient;
    State* state;
  };
  enum class Mode { kLoop, kForeach, kFused };

  void CheckGroups() const;
  bool Counts() const;
  std::vector<Member> Members(const torch::optim::OptimizerParamGroup& group, const Options& options);
  Mode ModeFor(const Options& options, const std::vector<Member>& members) const;
  double NextStep(State& state) const;
  void StepGroup(const torch::optim::OptimizerParamGroup& group);
  Batch BatchOf(const std::vector<Member>& members) const;
  void StepBatch(const Options& options, const std::vector<Member>& members);
  void StepFused(const Options& options, const std::vector<Member>& members);
  internal::Task TaskOf(const Options& options, const Member& member, double step, bool foreach) const;
  void StepPrograms(const Options& options, const std::vector<Member>& members, bool foreach);

  at::Tensor grad_scale_, found_inf_;
};

// An optimizer with options of class O. It has constructors, and serves LibTorch's torch::save() and torch::load().
template <typename O>
class OptimizerOf : public Optimizer {
 public:
  explicit OptimizerOf(const std::vector<torch::optim::OptimizerParamGroup>& groups, O defaults = {})
      : Optimizer(groups, std::make_unique<O>(std::move(defaults))) {}
  explicit OptimizerOf(std::vector<at::Tensor> parameters, O defaults = {})
      : OptimizerOf({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override {
    torch::optim::serialize<State, O>(archive, *this);
  }
  void load(torch::serialize::InputArchive& archive) override { torch::optim::serialize<State, O>(archive, *this); }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_OPTIMIZER_H_
