#include "lockstep/ddp/internal/autograd_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <utility>

namespace lockstep::ddp::internal {
namespace {

class Sink final : public torch::autograd::Node {
 public:
  explicit Sink(std::function<void()> on_backward) : on_backward_(std::move(on_backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    on_backward_();
    return std::move(gradients);
  }

 private:
  const std::function<void()> on_backward_;
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

std::vector<at::Tensor> PassThroughSink(const std::vector<at::Tensor>& outputs,
                                        const std::function<void()>& on_backward) {
  std::vector<at::Tensor> passed = outputs;
  for (at::Tensor& output : passed) {
    if (!output.defined() || !output.grad_fn()) continue;
    const auto sink = MakeAutogradNode<Sink>(on_backward);
    sink->set_next_edges(torch::autograd::collect_next_edges(output));
    output = output.tensor_data();  // the same numbers and version counter, outside the graph
    torch::autograd::set_history(output, sink);
  }
  return passed;
}

}  // namespace lockstep::ddp::internal
