#include "lockstep/models/recompute/recompute.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/recompute/internal/forward_state.h"
#include "lockstep/models/recompute/internal/saved_tensor_hooks.h"

namespace lockstep::models {
namespace internal {
namespace {

using torch::autograd::SavedVariableHooks;
using Tensors = std::vector<at::Tensor>;

constexpr int kNoBackward = -1;  // LibTorch's number of the graph task outside of backward

void Fail(const std::string& text) { throw StatusError(absl::FailedPreconditionError("recompute: " + text)); }

// A saved tensor as far as both forwards must agree on it.
struct Kind {
  explicit Kind(const at::Tensor& tensor)
      : sizes(tensor.sizes()), dtype(tensor.scalar_type()), device(tensor.device()) {
    const torch::autograd::Node* const node = tensor.grad_fn().get();
    if (node) origin = &typeid(*node);
  }
  bool operator==(const Kind& other) const {
    return sizes == other.sizes && dtype == other.dtype && device == other.device && origin == other.origin;
  }
  std::string ToString() const {
    const std::string name = origin ? c10::demangle(origin->name()) : "no operation";
    return absl::StrCat(c10::toString(dtype), " [", absl::StrJoin(sizes, ", "), "] on ", device.str(), " of ",
                        absl::StripPrefix(name, "torch::autograd::generated::"));
  }
  c10::DimVector sizes;
  c10::ScalarType dtype;
  c10::Device device;
  const std::type_info* origin = nullptr;  // the operation's Node, null for a tensor without a graph
};

// A tensor that the second forward saved.
struct Saved {
  explicit Saved(const at::Tensor& tensor) : tensor(tensor.detach()), version(tensor._version()) {}
  at::Tensor tensor;
  int64_t version;  // at that time
};

// The place of a tensor that the first forward saved. It lives as long as the graph may need the tensor.
struct Place {
  const int64_t number;
  const Kind kind;
  // By the backward passes' graph tasks. Frame::mutex guards it.
  std::map<int, Saved> saved;
};

// Thrown to end the second forward. Code that catches std::exception does not catch it.
struct Stop {};

// One call of Recompute(). The first graph's hooks own it.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(std::function<void(const Tensors&)> again, const Tensors& inputs, const RecomputeOptions& options)
      : again_(std::move(again)),
        options_(options),
        state_(AutocastDevices(inputs),
               options.preserve_rng_state ? Generators(inputs) : std::vector<at::Generator>()) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  std::shared_ptr<Place> AddPlace(const at::Tensor& tensor) {
    auto place = std::make_shared<Place>(Place{static_cast<int64_t>(places_.size()), Kind(tensor), {}});
    places_.push_back(place);
    return place;
  }
  void EndFirst() { first_ended_ = true; }

  // Returns the tensor of a place. Calls the function again if no other place has done so in this backward.
  at::Tensor Take(Place& place);

 private:
  friend class SecondForward;
  std::vector<at::Generator> Generators(const Tensors& inputs) const;
  void RunAgain(int task);
  void Forget(int task);
  void ForgetAfter(int task);

  const std::function<void(const Tensors&)> again_;
  const RecomputeOptions options_;
  const ForwardState state_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<std::weak_ptr<Place>> places_;
  bool first_ended_ = false;
  std::mutex mutex_;  // held while the function runs again
};

// Hooks of the first forward: keep the place only.
class EmptyPlace final : public SavedVariableHooks {
 public:
  explicit EmptyPlace(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  void call_pack_hook(const at::Tensor& tensor) override { place_ = frame_->AddPlace(tensor); }
  at::Tensor call_unpack_hook() override { return frame_->Take(*place_); }

 private:
  const std::shared_ptr<Frame> frame_;
  std::shared_ptr<Place> place_;
};

// Fills the places of a frame.
class SecondForward {
 public:
  SecondForward(Frame& frame, int task) : frame_(frame), task_(task) {
    for (int64_t i = 0; i < frame.places_.size(); ++i) {
      if (!frame.places_[i].expired()) needed_ = i + 1;
    }
  }
  void Save(const at::Tensor& tensor);
  void CheckCount() const;
  bool stopped() const { return stopped_; }

 private:
  Frame& frame_;
  const int task_;
  int64_t needed_ = 0;  // the number of tensors up to the last that the graph may need
  int64_t count_ = 0;
  bool stopped_ = false;
};

// Hooks of the second forward, whose own graph is needed if the function itself computes gradients.
class FilledPlace final : public SavedVariableHooks {
 public:
  explicit FilledPlace(SecondForward& second) : second_(second) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    second_.Save(tensor);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  SecondForward& second_;
  at::Tensor tensor_;
};

void SecondForward::Save(const at::Tensor& tensor) {
  if (stopped_) throw Stop();  // the function caught the first one
  const int64_t number = count_++;
  if (number >= frame_.places_.size()) return;  // CheckCount() reports it
  if (const std::shared_ptr<Place> place = frame_.places_[number].lock()) {
    const Kind found(tensor);
    if (frame_.options_.determinism_check && !(found == place->kind)) {
      Fail(absl::StrCat("the second forward saved ", found.ToString(), " as tensor ", number, "; expected ",
                        place->kind.ToString(), ", as the first forward saved"));
    }
    place->saved.insert_or_assign(task_, Saved(tensor));
  }
  if (frame_.options_.early_stop && count_ == needed_) {
    stopped_ = true;
    throw Stop();
  }
}

void SecondForward::CheckCount() const {
  // If the first forward is not at its end, it computes gradients itself, and has not saved everything yet.
  const int64_t expected = frame_.places_.size();
  if (stopped_ || count_ == expected || (!frame_.first_ended_ && count_ > expected)) return;
  Fail(absl::StrCat("the second forward saved ", count_, " tensors; expected ", expected, ", as many as the first"));
}

std::vector<at::Generator> Frame::Generators(const Tensors& inputs) const {
  std::vector<at::Generator> generators = DefaultGenerators(inputs);
  generators.insert(generators.end(), options_.generators.begin(), options_.generators.end());
  return generators;
}

at::Tensor Frame::Take(Place& place) {
  const int task = torch::autograd::get_current_graph_task_id();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (place.saved.count(task) == 0) RunAgain(task);
  auto node = place.saved.extract(task);
  if (task == kNoBackward) Forget(task);
  if (node.empty())
    Fail(absl::StrCat("the function caught an error of its second forward, before tensor ", place.number));
  const Saved& saved = node.mapped();
  if (saved.tensor._version() != saved.version) {
    Fail(absl::StrCat("tensor ", place.number, ", ", place.kind.ToString(),
                      ", was changed in place after it was saved: expected version ", saved.version, ", found ",
                      saved.tensor._version()));
  }
  return saved.tensor;
}

void Frame::RunAgain(int task) {
  Tensors inputs;
  for (const torch::autograd::SavedVariable& input : inputs_) inputs.push_back(input.unpack());
  Tensors buffers;
  for (const at::Tensor& buffer : options_.buffers) buffers.push_back(buffer.detach().clone());
  // Not through the tensor itself: a graph outside of the function may have saved it at its present version.
  const auto restore = absl::MakeCleanup([this, &buffers] {
    for (size_t i = 0; i < buffers.size(); ++i) options_.buffers[i].variable_data().copy_(buffers[i]);
  });
  auto forget = absl::MakeCleanup([this, task] { Forget(task); });
  SecondForward second(*this, task);
  try {
    const at::AutoGradMode grad(true);
    const SavedTensorHooks hooks([&second] { return std::make_unique<FilledPlace>(second); });
    state_.Run([this, &inputs] { again_(inputs); });
  } catch (...) {
    if (!second.stopped()) throw;
  }
  second.CheckCount();
  std::move(forget).Cancel();
  if (task != kNoBackward) ForgetAfter(task);
}

void Frame::Forget(int task) {
  for (const std::weak_ptr<Place>& weak : places_) {
    if (const std::shared_ptr<Place> place = weak.lock()) place->saved.erase(task);
  }
}

// Tensors that a backward does not take, such as for outputs without a gradient, end with it.
void Frame::ForgetAfter(int task) {
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), task] {
    if (const std::shared_ptr<Frame> frame = weak.lock()) {
      const std::lock_guard<std::mutex> lock(frame->mutex_);
      frame->Forget(task);
    }
  });
}

}  // namespace

void RunFirst(std::function<void(const Tensors& inputs)> again, const Tensors& inputs, const RecomputeOptions& options,
              const std::function<void()>& first) {
  if (!at::GradMode::is_enabled()) return first();
  const auto frame = std::make_shared<Frame>(std::move(again), inputs, options);
  const SavedTensorHooks hooks([&frame] { return std::make_unique<EmptyPlace>(frame); });
  first();
  frame->EndFirst();
}

}  // namespace internal

at::Tensor RecomputeSequential(const std::vector<std::function<at::Tensor(const at::Tensor&)>>& functions, int segments,
                               at::Tensor input, const RecomputeOptions& options) {
  if (segments < 1 || segments > functions.size()) {
    throw StatusError(absl::InvalidArgumentError(absl::StrCat("recompute: expected segments from 1 to the number of ",
                                                              "functions, ", functions.size(), "; found ", segments)));
  }
  const auto run = [&functions](size_t begin, size_t end) {
    return [part = std::vector(functions.begin() + begin, functions.begin() + end)](at::Tensor x) {
      for (const auto& function : part) x = function(x);
      return x;
    };
  };
  const size_t length = functions.size() / segments, last = length * (segments - 1);
  for (size_t begin = 0; begin < last; begin += length) input = Recompute(run(begin, begin + length), input, options);
  return run(last, functions.size())(input);
}

at::Tensor RecomputeSequential(const torch::nn::Sequential& modules, int segments, at::Tensor input,
                               const RecomputeOptions& options) {
  std::vector<std::function<at::Tensor(const at::Tensor&)>> functions;
  for (const torch::nn::AnyModule& module : *modules) {
    functions.emplace_back(
        [module = torch::nn::AnyModule(module)](const at::Tensor& x) mutable { return module.forward(x); });
  }
  return RecomputeSequential(functions, segments, std::move(input), internal::WithBuffers(options, modules));
}

}  // namespace lockstep::models
