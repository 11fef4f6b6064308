// The third part of DataParallel: runs each replica on its chunk, all at once.

#ifndef LOCKSTEP_DP_PARALLEL_APPLY_H_
#define LOCKSTEP_DP_PARALLEL_APPLY_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/dp/internal/workers.h"

namespace lockstep::dp {

namespace internal {

// Throws c10::ValueError unless there is one input and one device for each function.
void CheckParallelApply(size_t functions, size_t inputs, size_t devices);

// Returns `kept`. Creates it anew if it has too few threads for `devices`, or if the calling thread's number of
// intra-op threads has changed.
Workers& KeptWorkers(std::unique_ptr<Workers>& kept, const std::vector<c10::Device>& devices);

// Calls f(i) for each device, on a thread of `workers` with the state of the calling thread.
void RunOnDevices(Workers& workers, const std::vector<c10::Device>& devices, const std::function<void(size_t)>& f);

template <typename F, typename = void>
struct IsModule : std::false_type {};
template <typename F>
struct IsModule<F, std::void_t<decltype(std::declval<F&>()->named_parameters())>> : std::true_type {};

template <typename F, typename... Args>
decltype(auto) Invoke(F& function, Args&... args) {
  if constexpr (IsModule<F>::value) {
    return function->forward(args...);
  } else {
    return function(args...);
  }
}

template <typename F, typename... Args>
auto ParallelApply(Workers& workers, std::vector<F>& functions, std::vector<std::tuple<Args...>>& inputs,
                   const std::vector<c10::Device>& devices) {
  using Output = std::decay_t<decltype(Invoke(functions[0], std::declval<Args&>()...))>;
  CheckParallelApply(functions.size(), inputs.size(), devices.size());
  std::vector<std::optional<Output>> made(functions.size());
  RunOnDevices(workers, devices, [&](size_t i) {
    made[i] = std::apply([&](Args&... args) -> Output { return Invoke(functions[i], args...); }, inputs[i]);
  });
  std::vector<Output> outputs;
  for (std::optional<Output>& output : made) outputs.push_back(*std::move(output));
  return outputs;
}

}  // namespace internal

// Returns the result of functions[i] for the arguments inputs[i] on devices[i], for each i. Functions are modules
// (holders or std::shared_ptr), whose forward is called, or other callables.
//
//   const std::vector<at::Tensor> outputs = ParallelApply(replicas, inputs, devices);   // inputs: tuples of arguments
//
// Each runs on a separate thread, with the calling thread's grad mode, autocast, inference mode and other LibTorch
// state. Its device, and the caller's stream of that device, are the current ones. On the CPU each has its share of the
// caller's intra-op threads. Blocks until all have ended.
//
// If some throw, the first error in order is thrown after all have ended. A c10::Error keeps its type and gets "in
// replica 1 on device cuda:1" after its message. Any other exception becomes a StatusError with that exception nested
// in it. Throws c10::ValueError unless there is one input and one device for each function.
template <typename F, typename... Args>
auto ParallelApply(std::vector<F> functions, std::vector<std::tuple<Args...>> inputs,
                   const std::vector<c10::Device>& devices) {
  std::unique_ptr<internal::Workers> workers;
  return internal::ParallelApply(internal::KeptWorkers(workers, devices), functions, inputs, devices);
}

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_PARALLEL_APPLY_H_
