#ifndef LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_BACKEND_H_
#define LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_BACKEND_H_

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/comm/backend.h"

namespace lockstep::comm::internal {

// Chooses the network interface for Gloo's connections: GLOO_SOCKET_IFNAME if it is set, as in PyTorch; otherwise
// loopback if the ranks met on it or share a host; otherwise the interface of the route to the master;
// otherwise PyTorch's choice.
decltype(c10d::ProcessGroupGloo::Options::devices) ChooseDevices(const BackendContext& context);

// Returns whether two ranks connect when they first exchange something: if the context says so, or the environment
// variable TORCH_GLOO_LAZY_INIT, as in Python. Never before LibTorch 2.8.
bool ConnectsLazily(const BackendContext& context);

// Returns PyTorch's Gloo with the additional guarantees of comm/backend.h. If Python has a call, this issues the same
// Gloo calls, so that Python ranks can be in the same group. Throws the exceptions of ProcessGroupGloo's constructor.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const BackendContext& context);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_BACKEND_H_
