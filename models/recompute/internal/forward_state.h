// The state of a thread and its random generators in which a function runs.

#ifndef LOCKSTEP_MODELS_RECOMPUTE_INTERNAL_FORWARD_STATE_H_
#define LOCKSTEP_MODELS_RECOMPUTE_INTERNAL_FORWARD_STATE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <utility>
#include <vector>

namespace lockstep::models::internal {

// The random generators' and autocast's state at the time of construction.
class ForwardState {
 public:
  // Autocast's state for the device types, and the state of the generators. Other state of the thread is left alone.
  ForwardState(const std::vector<c10::DeviceType>& devices, const std::vector<at::Generator>& generators);

  // Calls f() in this state, and then brings back the state that it found, also after an exception.
  void Run(const std::function<void()>& f) const;

 private:
  struct Autocast {
    c10::DeviceType device;
    bool enabled;
    c10::ScalarType dtype;
  };
  ForwardState Found() const;
  void Restore() const;

  std::vector<Autocast> autocast_;
  bool cache_enabled_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

// The default generators of the CPU and of the inputs' devices.
std::vector<at::Generator> DefaultGenerators(const std::vector<at::Tensor>& inputs);

// The CPU and the types of the inputs' devices, as far as they have an autocast.
std::vector<c10::DeviceType> AutocastDevices(const std::vector<at::Tensor>& inputs);

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_RECOMPUTE_INTERNAL_FORWARD_STATE_H_
