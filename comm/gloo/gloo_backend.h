#ifndef LOCKSTEP_COMM_GLOO_GLOO_BACKEND_H_
#define LOCKSTEP_COMM_GLOO_GLOO_BACKEND_H_

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/comm/backend.h"

namespace lockstep::comm {

// The interface that Gloo's connections use: GLOO_SOCKET_IFNAME, as in PyTorch; else loopback where the ranks met on
// it or are known to share a host; else the one that the way to the master leads through; else PyTorch's choice.
decltype(c10d::ProcessGroupGloo::Options::devices) ChooseDevices(const BackendContext& context);

// PyTorch's Gloo with what comm/backend.h promises on top. Each call issues the same Gloo calls as Python's, where
// Python has the call at all, so that both can be in one group. Throws what ProcessGroupGloo's constructor throws.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const BackendContext& context);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_GLOO_GLOO_BACKEND_H_
