#include "lockstep/ddp/internal/sink.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
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

std::vector<at::Tensor> PassThroughSink(const std::vector<at::Tensor>& outputs,
                                        const std::function<void()>& on_backward) {
  std::vector<at::Tensor> passed = outputs;
  for (at::Tensor& output : passed) {
    if (!output.defined() || !output.grad_fn()) continue;
    const std::shared_ptr<Sink> sink(new Sink(on_backward), torch::autograd::deleteNode);
    sink->set_next_edges(torch::autograd::collect_next_edges(output));
    output = output.tensor_data();  // the same numbers and version counter, outside the graph
    torch::autograd::set_history(output, sink);
  }
  return passed;
}

}  // namespace lockstep::ddp::internal
