// Names that are the same with every release of LibTorch from 2.7 on. See also libtorch_version.h.

#ifndef LOCKSTEP_BASE_LIBTORCH_COMPATIBILITY_H_
#define LOCKSTEP_BASE_LIBTORCH_COMPATIBILITY_H_

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

#include "lockstep/base/libtorch_version.h"

namespace lockstep {

// autograd's pointer to a node: std::shared_ptr, and from 2.13 on c10::intrusive_ptr.
using AutogradNodePtr = decltype(torch::autograd::Edge::function);

// A new node of type `T`. It is deleted without recursion, however long the chain of nodes that only it keeps alive.
template <typename T, typename... Arguments>
auto MakeAutogradNode(Arguments&&... arguments) {
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 13)
  return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
#else
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
#endif
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_LIBTORCH_COMPATIBILITY_H_
