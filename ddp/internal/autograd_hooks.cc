#include "lockstep/ddp/internal/autograd_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep::ddp::internal {
namespace {

class BackwardHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit BackwardHook(std::function<void()> callback) : callback_(std::move(callback)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    callback_();
    return gradients;
  }

 private:
  const std::function<void()> callback_;
};

}  // namespace

AccumulatorHooks::AccumulatorHooks(std::vector<at::Tensor> parameters, MakeHook make_hook)
    : parameters_(std::move(parameters)), make_hook_(std::move(make_hook)) {
  Install();
}

AccumulatorHooks::~AccumulatorHooks() { Remove(); }

void AccumulatorHooks::Install() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
    keys_.push_back(accumulators_.back()->add_post_hook(make_hook_(static_cast<int>(i))));
  }
}

void AccumulatorHooks::Remove() {
  for (size_t i = 0; i < keys_.size(); ++i) accumulators_[i]->del_post_hook(keys_[i]);
  keys_.clear();
  accumulators_.clear();
}

void AccumulatorHooks::Reinstall() {
  Remove();
  Install();
  reinstalled_ = true;
}

int AccumulatorHooks::Replaced() const {
  if (reinstalled_) return -1;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (torch::autograd::impl::try_get_grad_accumulator(parameters_[i]) != accumulators_[i]) return static_cast<int>(i);
  }
  return -1;
}

bool AccumulatorHooks::AccumulatedInBackward() const {
  const auto* const executed = torch::autograd::get_current_graph_task_exec_info();
  if (!executed || executed->empty()) return true;  // all nodes are executed
  return std::any_of(accumulators_.begin(), accumulators_.end(), [executed](const AutogradNodePtr& accumulator) {
    const auto found = executed->find(accumulator.get());
    return found != executed->end() && found->second.needed_;
  });
}

const std::vector<std::unique_ptr<torch::autograd::FunctionPostHook>>& AccumulatorHooks::On(int index) const {
  return accumulators_[static_cast<size_t>(index)]->post_hooks();
}

std::vector<int> AccumulatorHooks::NotInBackward() const {
  std::vector<int> missing;
  const auto* const nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (!nodes) return missing;
  for (size_t i = 0; i < accumulators_.size(); ++i) {
    if (nodes->count(accumulators_[i].get()) == 0) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

void CallAtEndOfBackward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

void CallInBackwardThrough(const at::Tensor& output, std::function<void()> callback) {
  if (!output.defined() || !output.grad_fn()) return;
  output.grad_fn()->add_pre_hook(std::make_unique<BackwardHook>(std::move(callback)));
}

}  // namespace lockstep::ddp::internal
