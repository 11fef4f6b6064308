#include "lockstep/models/recompute/internal/forward_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"

namespace lockstep::models::internal {
namespace {

// Adds `value` unless it is there.
template <typename T>
void Add(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

ForwardState::ForwardState(const std::vector<c10::DeviceType>& devices, const std::vector<at::Generator>& generators)
    : cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  for (const c10::DeviceType device : devices) {
    autocast_.push_back({device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  }
  for (const at::Generator& generator : generators) generators_.emplace_back(generator, StateOf(generator));
}

ForwardState ForwardState::Found() const {
  std::vector<c10::DeviceType> devices;
  for (const Autocast& autocast : autocast_) devices.push_back(autocast.device);
  std::vector<at::Generator> generators;
  for (const auto& [generator, state] : generators_) generators.push_back(generator);
  return ForwardState(devices, generators);
}

void ForwardState::Restore() const {
  for (const Autocast& autocast : autocast_) {
    at::autocast::set_autocast_enabled(autocast.device, autocast.enabled);
    at::autocast::set_autocast_dtype(autocast.device, autocast.dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache_enabled_);
  for (auto [generator, state] : generators_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

// Parameters that f() casts stay in autocast's cache until the outermost autocast ends, as under ddp::Autocast.
void ForwardState::Run(const std::function<void()>& f) const {
  const ForwardState found = Found();
  const auto restore = absl::MakeCleanup([&found] {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    found.Restore();
  });
  at::autocast::increment_nesting();
  Restore();
  f();
}

std::vector<at::Generator> DefaultGenerators(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Generator> generators = {at::globalContext().defaultGenerator(at::kCPU)};
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.is_cuda()) Add(generators, at::globalContext().defaultGenerator(input.device()));
  }
  return generators;
}

std::vector<c10::DeviceType> AutocastDevices(const std::vector<at::Tensor>& inputs) {
  std::vector<c10::DeviceType> devices = {at::kCPU};
  for (const at::Tensor& input : inputs) {
    if (input.defined() && at::autocast::is_autocast_available(input.device().type()))
      Add(devices, input.device().type());
  }
  return devices;
}

}  // namespace lockstep::models::internal
