#include "lockstep/models/exported/regions.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/models/exported/run.h"

namespace lockstep::models::exported {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Removes the first `count` entries.
void Drop(Stack& stack, size_t count) { stack.erase(stack.begin(), stack.begin() + static_cast<int64_t>(count)); }

void SetGradEnabled(const Instruction& instruction, Stack& stack) {
  const c10::AutoGradMode mode(stack[0].toBool());
  Drop(stack, 1);
  Run(instruction.bodies[0], stack);
}

// As Python's torch.autocast(device_type, dtype, enabled, cache_enabled).
void Autocast(const Instruction& instruction, Stack& stack) {
  const c10::DeviceType device = c10::Device(stack[0].toStringRef()).type();
  const bool was_enabled = at::autocast::is_autocast_enabled(device);
  const bool was_cached = at::autocast::is_autocast_cache_enabled();
  const at::ScalarType old_dtype = at::autocast::get_autocast_dtype(device);
  const bool cached = stack[3].isNone() ? was_cached : stack[3].toBool();
  const at::ScalarType dtype = stack[1].isNone() ? old_dtype : static_cast<at::ScalarType>(stack[1].toInt());
  at::autocast::set_autocast_enabled(device, stack[2].toBool());
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_cache_enabled(cached);
  at::autocast::increment_nesting();
  const auto restore = absl::MakeCleanup([&] {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device, was_enabled);
    at::autocast::set_autocast_dtype(device, old_dtype);
    at::autocast::set_autocast_cache_enabled(was_cached);
  });
  Drop(stack, 4);
  Run(instruction.bodies[0], stack);
}

bool IsTrue(const IValue& value) { return value.isTensor() ? value.toTensor().item<bool>() : value.toBool(); }

// Returns tensors as they are. If one of them gets a gradient, the others without one get zeros.
struct WithAllGradients : torch::autograd::Function<WithAllGradients> {
  using List = torch::autograd::variable_list;
  static List forward(torch::autograd::AutogradContext* /*context*/, at::TensorList tensors) { return tensors.vec(); }
  static List backward(torch::autograd::AutogradContext* /*context*/, List gradients) { return gradients; }
};

// As in Python, an operand that the taken branch does not use has a gradient of zeros.
void Cond(const Instruction& instruction, Stack& stack) {
  const Code& body = instruction.bodies[IsTrue(stack[0]) ? 0 : 1];
  Drop(stack, 1);
  std::vector<size_t> places;
  std::vector<at::Tensor> operands;
  for (size_t i = 0; i < stack.size() && c10::GradMode::is_enabled(); ++i) {
    if (!stack[i].isTensor() || !stack[i].toTensor().requires_grad()) continue;
    places.push_back(i);
    operands.push_back(stack[i].toTensor());
  }
  if (!operands.empty()) operands = WithAllGradients::apply(at::TensorList(operands));
  for (size_t i = 0; i < places.size(); ++i) stack[places[i]] = std::move(operands[i]);
  Run(body, stack);
}

void Whole(const Instruction& instruction, Stack& stack) { Run(instruction.bodies[0], stack); }

// A subgraph with a name.
void Named(const Instruction& instruction, Stack& stack) {
  Drop(stack, 1);
  Run(instruction.bodies[0], stack);
}

// The carried values come first; the body returns their next values.
void WhileLoop(const Instruction& instruction, Stack& stack) {
  const Code &condition = instruction.bodies[0], &body = instruction.bodies[1];
  const size_t carried = body.outputs.size();
  bool once = false;
  for (;; once = true) {
    Stack asked = stack;
    Run(condition, asked);
    if (!IsTrue(asked[0])) break;
    Stack next = stack;
    Run(body, next);
    std::move(next.begin(), next.end(), stack.begin());
  }
  stack.resize(carried);
  if (once) return;
  for (IValue& value : stack) {
    if (value.isTensor()) value = value.toTensor().clone();
  }
}

// The first `lists[0]` operands are cut along dimension 0, and the body runs on each cut.
void Map(const Instruction& instruction, Stack& stack) {
  const Code& body = instruction.bodies[0];
  const size_t mapped = static_cast<size_t>(instruction.mapped);
  const int64_t length = stack[0].toTensor().size(0);
  TORCH_CHECK(length > 0, "map over a tensor without rows");
  std::vector<std::vector<at::Tensor>> results(body.outputs.size());
  for (int64_t i = 0; i < length; ++i) {
    Stack one = stack;
    for (size_t j = 0; j < mapped; ++j) one[j] = stack[j].toTensor().select(0, i);
    Run(body, one);
    for (size_t j = 0; j < results.size(); ++j) results[j].push_back(one[j].toTensor());
  }
  stack.clear();
  for (const std::vector<at::Tensor>& result : results) stack.emplace_back(at::stack(result));
}

}  // namespace

absl::StatusOr<Region> FindRegion(absl::string_view target, const std::vector<int64_t>& list_sizes,
                                  const Instruction& instruction) {
  absl::ConsumePrefix(&target, "torch.ops.higher_order.");
  const size_t bodies = instruction.bodies.size(), operands = instruction.operands.size();
  // Checks that bodies and the operands that are no inputs of theirs are as many as the operator has.
  const auto checked = [&](Region region, size_t wanted, size_t own) -> absl::StatusOr<Region> {
    if (bodies != wanted) return absl::DataLossError(absl::StrCat("it has ", bodies, " graphs, expected ", wanted));
    for (const Code& body : instruction.bodies) {
      if (body.inputs.size() + own == operands) continue;
      return absl::DataLossError(absl::StrCat("its graph has ", body.inputs.size(), " inputs, expected ",
                                              static_cast<int64_t>(operands) - static_cast<int64_t>(own)));
    }
    return region;
  };
  if (target == "wrap_with_set_grad_enabled") return checked(SetGradEnabled, 1, 1);
  if (target == "wrap_with_autocast") return checked(Autocast, 1, 4);
  if (target == "cond") return checked(Cond, 2, 1);
  if (target == "tag_activation_checkpoint" || target == "wrap" || target == "hints_wrapper") {
    return checked(Whole, 1, 0);
  }
  if (target == "invoke_subgraph") return checked(Named, 1, 1);
  if (target == "while_loop") {
    if (bodies == 2 && instruction.bodies[1].outputs.size() > operands) {
      return absl::DataLossError("its body has more outputs than inputs");
    }
    return checked(WhileLoop, 2, 0);
  }
  if (target == "map_impl") {
    if (list_sizes.empty() || list_sizes[0] < 1) return absl::DataLossError("it maps over nothing");
    return checked(Map, 1, 0);
  }
  return absl::UnimplementedError("this higher-order operator is not supported");
}

}  // namespace lockstep::models::exported
