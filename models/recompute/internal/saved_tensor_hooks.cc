#include "lockstep/models/recompute/internal/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep::models::internal {
namespace {

using torch::autograd::AnomalyMetadata;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::Node;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

thread_local const SavedTensorHooks::Make* innermost = nullptr;

// Has no threads of its own: `behind` runs every backward.
class HookingEngine final : public Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return innermost ? (*innermost)() : behind.load()->get_default_saved_variable_hooks();
  }
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph, bool create_graph,
                        bool accumulate_grad, const edge_list& outputs) override {
    return behind.load()->execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(const std::shared_ptr<GraphTask>& graph_task,
                                                                 std::shared_ptr<Node> graph_root,
                                                                 InputBuffer&& input_buffer) override {
    return behind.load()->execute_with_graph_task(graph_task, std::move(graph_root), std::move(input_buffer));
  }
  std::unique_ptr<AnomalyMetadata> make_anomaly_metadata() override { return behind.load()->make_anomaly_metadata(); }

  std::atomic<Engine*> behind{nullptr};
};

HookingEngine& TheEngine() {
  static auto* const engine = new HookingEngine;  // graphs may be freed after main
  return *engine;
}

// Again if another engine came in between, such as Python's when a program starts an interpreter.
void PutInFront() {
  if (&Engine::get_default_engine() == &TheEngine()) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  Engine& current = Engine::get_default_engine();
  if (&current == &TheEngine()) return;
  TheEngine().behind = &current;
  torch::autograd::set_default_engine_stub([]() -> Engine& { return TheEngine(); });
}

}  // namespace

SavedTensorHooks::SavedTensorHooks(Make make) : make_(std::move(make)), outer_(innermost) {
  PutInFront();
  innermost = &make_;
}

SavedTensorHooks::~SavedTensorHooks() { innermost = outer_; }

}  // namespace lockstep::models::internal
