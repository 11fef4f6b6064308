#include "lockstep/optim/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>

#include "lockstep/optim/internal/blocks.h"
#include "lockstep/optim/internal/grouped.h"

namespace lockstep::optim {

using torch::optim::OptimizerParamGroup;

namespace {

const Options& OptionsOf(const OptimizerParamGroup& group) { return static_cast<const Options&>(group.options()); }

// Python counts in float32, or in float64 if that is the default dtype. On a device only if the step stays there.
at::TensorOptions CounterOptions(const at::Tensor& parameter, const Options& options) {
  const bool fused = options.use_fused().value_or(false);
  const bool is_double = !fused && c10::get_default_dtype_as_scalartype() == at::kDouble;
  const at::TensorOptions dtype(is_double ? at::kDouble : at::kFloat);
  return fused || options.use_capturable() ? dtype.device(parameter.device()) : dtype;
}

void CheckFused(const at::Tensor& parameter) {
  TORCH_CHECK(parameter.is_floating_point() && (parameter.is_cpu() || parameter.is_cuda()),
              "`fused=True` requires all the params to be floating point Tensors of supported devices: ['cpu', 'cuda'] "
              "but ",
              parameter.scalar_type(), " and ", parameter.device().type());
}

// Kernels read a gradient by its pointer. Lets an operator say why there are no values, as of a shard of fsdp before Step().
void CheckHasValues(const at::Tensor& gradient) {
  if (!gradient.has_storage() || gradient.numel() == 0 || gradient.storage().nbytes() > 0) return;
  at::sum(gradient);
  TORCH_CHECK(false, "a gradient has no values");
}

// A schedule may give NaN, and a step with it would destroy the parameters. A rate on a GPU is not waited for.
void CheckRate(const Options& options) {
  TORCH_CHECK_VALUE(!options.rate_is_on_cpu() || !std::isnan(options.get_lr()), "Invalid learning rate: nan");
}

template <typename T>
double Increment(at::Tensor& counter) {
  return *counter.mutable_data_ptr<T>() += 1;
}

}  // namespace

Optimizer::Optimizer(const std::vector<OptimizerParamGroup>& groups, std::unique_ptr<Options> defaults)
    : torch::optim::Optimizer(groups, std::move(defaults)) {
  CheckGroups();
}

void Optimizer::CheckGroups() const {
  static_cast<const Options&>(*defaults_).Check();
  std::set<c10::TensorImpl*> seen;
  for (const OptimizerParamGroup& group : param_groups_) {
    OptionsOf(group).Check();
    for (const at::Tensor& parameter : group.params()) {
      TORCH_CHECK_VALUE(seen.insert(parameter.unsafeGetTensorImpl()).second,
                        "some parameters appear in more than one parameter group, or twice in one");
      TORCH_CHECK_VALUE(parameter.is_leaf() || parameter.retains_grad(), "can't optimize a non-leaf Tensor");
    }
  }
}

void Optimizer::InitState(const at::Tensor& parameter, const Options& options, State& state) const {}

void Optimizer::BeginGroup(const Options& options, const std::vector<at::Tensor>& parameters) {}

void Optimizer::Write(const Options& options, const State& state, double step, bool foreach,
                      internal::Program& program) const {}

void Optimizer::Finish(const Options& options, const State& state, bool foreach) const {}

bool Optimizer::StepSparse(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                           State& state) const {
  return false;
}

bool Optimizer::StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                          State& state) const {
  return false;
}

void Optimizer::Fused(const Options& options, Batch& batch) const {
  TORCH_CHECK(false, name(), " has no fused implementation");
}

void Optimizer::CheckSparse(const Options& options) const {
  TORCH_CHECK(false, name(), " does not support sparse gradients");
}

bool Optimizer::Counts() const { return std::strcmp(state_keys().front(), "step") == 0; }

std::unique_ptr<State> Optimizer::NewState(const at::Tensor& parameter, const Options& options) const {
  auto state = std::make_unique<State>();
  state->tensors.resize(state_keys().size());
  if (Counts()) state->tensors.front() = at::zeros({}, CounterOptions(parameter, options));
  InitState(parameter, options, *state);
  return state;
}

State& Optimizer::StateOf(const at::Tensor& parameter, const Options& options) {
  auto& state = state_[parameter.unsafeGetTensorImpl()];
  if (!state) state = NewState(parameter, options);
  return static_cast<State&>(*state);
}

std::vector<Optimizer::Member> Optimizer::Members(const OptimizerParamGroup& group, const Options& options) {
  std::vector<Member> members;
  for (const at::Tensor& parameter : group.params()) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (options.use_fused().value_or(false)) CheckFused(parameter);
    if (gradient.is_sparse()) CheckSparse(options);
    CheckHasValues(gradient);
    members.push_back({parameter, gradient, &StateOf(parameter, options)});
  }
  return members;
}

Optimizer::Mode Optimizer::ModeFor(const Options& options, const std::vector<Member>& members) const {
  const auto foreach = options.use_foreach(), fused = options.use_fused();
  if (fused.value_or(false)) return Mode::kFused;
  const bool rate_fits = !options.rate_is_tensor() || foreach_takes_tensor_rate();
  if (foreach.value_or(false)) {
    TORCH_CHECK(rate_fits, "lr as a Tensor is not supported for capturable=False and foreach=True");
    return Mode::kForeach;
  }
  const bool on_gpus =
      std::all_of(members.begin(), members.end(), [](const Member& member) { return member.parameter.is_cuda(); });
  return !foreach && !fused && on_gpus && rate_fits ? Mode::kForeach : Mode::kLoop;
}

double Optimizer::NextStep(State& state) const {
  if (!Counts()) return 0;
  at::Tensor& counter = state.tensors.front();
  if (counter.is_cpu() && counter.scalar_type() == at::kFloat) return Increment<float>(counter);
  return counter.add_(1).item<double>();
}

internal::Task Optimizer::TaskOf(const Options& options, const Member& member, double step, bool foreach) const {
  // Python's multi-tensor functions view complex tensors as real ones at once, and its loops later.
  const bool is_complex = !foreach && member.parameter.is_complex();
  internal::Task task{internal::Program(static_cast<int>(state_keys().size()), is_complex),
                      {member.parameter, member.gradient}};
  Write(options, *member.state, step, foreach, task.program);
  task.registers.insert(task.registers.end(), member.state->tensors.begin(), member.state->tensors.end());
  if (foreach && complex_as_real()) internal::AsReal(task.registers);
  return task;
}

void Optimizer::StepPrograms(const Options& options, const std::vector<Member>& members, bool foreach) {
  TORCH_CHECK(!options.use_capturable(),
              "If capturable=True, params and state_steps must be on supported devices, and fused must be True");
  std::vector<internal::Task> tasks;
  std::vector<State*> states;
  for (const Member& member : members) {
    const double step = NextStep(*member.state);
    const auto other_step = member.gradient.is_sparse() ? &Optimizer::StepSparse : &Optimizer::StepDense;
    if ((this->*other_step)(options, step, member.parameter, member.gradient, *member.state)) continue;
    tasks.push_back(TaskOf(options, member, step, foreach));
    states.push_back(member.state);
  }
  internal::Run(tasks, foreach);
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (size_t j = 0; j < states[i]->tensors.size(); ++j) {
      if (!states[i]->tensors[j].defined()) states[i]->tensors[j] = tasks[i].registers[internal::kState + j];
    }
    Finish(options, *states[i], foreach);
  }
}

Optimizer::Batch Optimizer::BatchOf(const std::vector<Member>& members) const {
  Batch batch;
  batch.states.resize(state_keys().size());
  for (const Member& member : members) {
    batch.parameters.push_back(member.parameter);
    batch.gradients.push_back(member.gradient);
    for (size_t i = 0; i < batch.states.size(); ++i) batch.states[i].push_back(member.state->tensors[i]);
  }
  const at::Device device = members.front().parameter.device();
  if (grad_scale_.defined()) batch.grad_scale = grad_scale_.to(device, /*non_blocking=*/true);
  if (found_inf_.defined()) batch.found_inf = found_inf_.to(device, /*non_blocking=*/true);
  return batch;
}

void Optimizer::StepBatch(const Options& options, const std::vector<Member>& members) {
  Batch batch = BatchOf(members);
  if (Counts() && batch.states.front().front().is_cpu()) {
    for (const Member& member : members) NextStep(*member.state);
  } else if (Counts()) {
    at::_foreach_add_(batch.states.front(), 1);
  }
  Fused(options, batch);
  if (Counts() && batch.found_inf) {
    at::_foreach_sub_(batch.states.front(), std::vector<at::Tensor>(members.size(), batch.found_inf->reshape({})));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < batch.states.size(); ++j) members[i].state->tensors[j] = batch.states[j][i];
  }
}

void Optimizer::StepFused(const Options& options, const std::vector<Member>& members) {
  const auto same = [](const Member& a, const Member& b) {
    return a.parameter.device() == b.parameter.device() && a.parameter.scalar_type() == b.parameter.scalar_type();
  };
  for (const auto& together : internal::Grouped(members, same)) StepBatch(options, together);
}

void Optimizer::StepGroup(const OptimizerParamGroup& group) {
  const Options& options = OptionsOf(group);
  const std::vector<Member> members = Members(group, options);
  const Mode mode = ModeFor(options, members);
  TORCH_CHECK(mode == Mode::kFused || (!grad_scale_.defined() && !found_inf_.defined()),
              "Expected grad_scale and found_inf to be None");
  if (members.empty()) return;
  std::vector<at::Tensor> parameters;
  for (const Member& member : members) parameters.push_back(member.parameter);
  BeginGroup(options, parameters);
  if (mode == Mode::kFused) {
    StepFused(options, members);
  } else {
    StepPrograms(options, members, mode == Mode::kForeach);
  }
}

at::Tensor Optimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const c10::AutoGradMode enable_grad(true);
    loss = closure();
  }
  const c10::NoGradGuard no_grad;
  for (const OptimizerParamGroup& group : param_groups_) CheckRate(OptionsOf(group));
  for (const OptimizerParamGroup& group : param_groups_) StepGroup(group);
  grad_scale_.reset();
  found_inf_.reset();
  return loss;
}

bool Optimizer::StepSupportsAmpScaling() const {
  return std::all_of(param_groups_.begin(), param_groups_.end(),
                     [](const OptimizerParamGroup& group) { return OptionsOf(group).use_fused().value_or(false); });
}

void Optimizer::SetGradScale(at::Tensor grad_scale, at::Tensor found_inf) {
  grad_scale_ = std::move(grad_scale);
  found_inf_ = std::move(found_inf);
}

}  // namespace lockstep::optim
