#include "lockstep/dp/parallel_apply.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::dp {
namespace internal {
namespace {

// Autocast in a thread that did not begin it. The thread that began it clears the cache.
class AutocastPart {
 public:
  explicit AutocastPart(bool cache_enabled) : formerly_enabled_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(cache_enabled);
    at::autocast::increment_nesting();
  }
  ~AutocastPart() {
    at::autocast::decrement_nesting();
    at::autocast::set_autocast_cache_enabled(formerly_enabled_);
  }
  AutocastPart(const AutocastPart&) = delete;
  AutocastPart& operator=(const AutocastPart&) = delete;

 private:
  const bool formerly_enabled_;
};

// The creating thread's state that must apply in other threads.
class CallerState {
 public:
  explicit CallerState(const std::vector<c10::Device>& devices) {
    for (const c10::Device& device : devices) streams_.push_back(StreamOf(device));
  }

  // Calls f() under this state, on the i-th device.
  template <typename F>
  void Apply(size_t i, F&& f) const {
    const at::ThreadLocalStateGuard state(state_);
    const AutocastPart autocast(autocast_cache_enabled_);
    const c10::OptionalStreamGuard stream =
        streams_[i] ? c10::OptionalStreamGuard(*streams_[i]) : c10::OptionalStreamGuard();
    f();
  }

 private:
  static std::optional<c10::Stream> StreamOf(c10::Device device) {
    if (device.is_cpu()) return std::nullopt;
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  const at::ThreadLocalState state_;
  const bool autocast_cache_enabled_ = at::autocast::is_autocast_cache_enabled();
  std::vector<std::optional<c10::Stream>> streams_;
};

[[noreturn]] void Rethrow(const std::exception_ptr& error, const std::string& where) {
  try {
    std::rethrow_exception(error);
  } catch (const StatusError& e) {
    throw StatusError(Annotate(e.status(), where));
  } catch (c10::Error& e) {
    e.add_context(where);
    throw;
  } catch (...) {
    std::throw_with_nested(StatusError(StatusFromException(std::current_exception(), where)));
  }
}

}  // namespace

void CheckParallelApply(size_t functions, size_t inputs, size_t devices) {
  TORCH_CHECK_VALUE(inputs == functions && devices == functions, "ParallelApply: expected an input and a device for ",
                    "each of ", functions, " functions, found ", inputs, " inputs and ", devices, " devices");
}

Workers& KeptWorkers(std::unique_ptr<Workers>& kept, const std::vector<c10::Device>& devices) {
  if (!kept || kept->size() < devices.size() || kept->intra_op_threads() != at::get_num_threads()) {
    kept = std::make_unique<Workers>(devices.size(), !devices.empty() && devices[0].is_cpu());
  }
  return *kept;
}

void RunOnDevices(Workers& workers, const std::vector<c10::Device>& devices, const std::function<void(size_t)>& f) {
  const CallerState state(devices);
  std::vector<std::exception_ptr> errors(devices.size());
  workers.Run(devices.size(), [&](size_t i) {
    try {
      state.Apply(i, [&] { f(i); });
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (size_t i = 0; i < errors.size(); ++i) {
    if (errors[i]) Rethrow(errors[i], c10::str("in replica ", i, " on device ", devices[i]));
  }
}

}  // namespace internal
}  // namespace lockstep::dp
