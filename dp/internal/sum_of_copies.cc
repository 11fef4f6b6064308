#include "lockstep/dp/internal/sum_of_copies.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <string>
#include <utility>

#include "lockstep/base/libtorch_compatibility.h"
#include "lockstep/dp/internal/copy.h"
#include "lockstep/dp/internal/peers.h"

namespace lockstep::dp::internal {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Returns whether `sum` can change without any other tensor seeing it.
bool IsOurs(const at::Tensor& sum) {
  return !at::GradMode::is_enabled() && sum.layout() == c10::kStrided && sum.use_count() == 1 &&
         sum.storage().use_count() == 1;
}

at::Tensor Plus(const at::Tensor& sum, at::Tensor gradient) {
  if (!sum.defined()) return gradient;
  if (IsOurs(sum) && gradient.layout() == c10::kStrided) return sum.add_(gradient);
  const bool dense_last = sum.layout() != c10::kStrided && gradient.layout() == c10::kStrided;
  return dense_last ? gradient + sum : sum + gradient;  // LibTorch adds a sparse tensor to a dense one only
}

class SumOfCopies : public Node {
 public:
  // `gradients[copy * sources + source]`; some may be undefined. Like PyTorch's accumulation of gradients, the engine
  // runs it before all other nodes.
  SumOfCopies(edge_list edges, std::vector<c10::Device> devices)
      : Node(std::numeric_limits<uint64_t>::max(), std::move(edges)), devices_(std::move(devices)) {}

  variable_list apply(variable_list&& gradients) override {
    const size_t sources = devices_.size();
    if (auto sums = SumOverPeers(gradients, devices_)) return *std::move(sums);
    variable_list sums(sources);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      at::Tensor& sum = sums[i % sources];
      sum = Plus(sum, CopyTo(std::exchange(gradients[i], {}), devices_[i % sources]));
    }
    return sums;
  }

  std::string name() const override { return "LockstepSumOfCopies"; }

 private:
  const std::vector<c10::Device> devices_;  // of the sources
};

}  // namespace

void AttachCopies(const std::vector<at::Tensor>& sources, const std::vector<std::vector<at::Tensor>>& copies) {
  edge_list edges;
  std::vector<c10::Device> devices;
  std::vector<size_t> attached;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].requires_grad()) continue;
    edges.push_back(torch::autograd::impl::gradient_edge(sources[i]));
    devices.push_back(sources[i].device());
    attached.push_back(i);
  }
  const auto node = MakeAutogradNode<SumOfCopies>(std::move(edges), std::move(devices));
  for (const std::vector<at::Tensor>& of_copy : copies) {
    for (const size_t i : attached) {
      torch::autograd::impl::set_gradient_edge(of_copy[i], Edge(node, node->add_input_metadata(of_copy[i])));
    }
  }
}

}  // namespace lockstep::dp::internal
