// Parameters whose values are not always there. Before an operator reads or writes one, its values are asked for.

#ifndef LOCKSTEP_FSDP_INTERNAL_PARAMETER_KEY_H_
#define LOCKSTEP_FSDP_INTERNAL_PARAMETER_KEY_H_

#include <ATen/core/Tensor.h>

#include <memory>

namespace lockstep::fsdp::internal {

// The values of one or more parameters.
class Pageable {
 public:
  virtual ~Pageable() = default;

  // Makes the values present until EndUse(). Throws StatusError if it cannot; then no EndUse() follows. Uses nest.
  virtual void BeginUse() = 0;
  virtual void EndUse() = 0;
};

// Frees the memory of `parameter`, which must be its own, and lets each operator that takes the parameter, or a view
// made from now on, use `values` meanwhile. The parameter's TensorImpl gets one more dispatch key
// (DispatchKey::DeferredInit, which LibTorch leaves to others); it is the same object as before. Operators on other
// tensors cost nothing. Code that reads the parameter by its pointer, without an operator, is not seen.
void MakePageable(const at::Tensor& parameter, std::shared_ptr<Pageable> values);

// Gives a parameter, which may be pageable, the memory of `data`.
void ReplaceData(const at::Tensor& parameter, const at::Tensor& data);

// False if the parameter's data was replaced, as by module->to(dtype).
bool IsPageable(const at::Tensor& parameter, const Pageable* values);

// From now on the parameter's elements are at `data`, or nowhere if it is null. The memory is borrowed. Does nothing if
// the parameter's data was replaced.
void SetData(const at::Tensor& parameter, void* data);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_PARAMETER_KEY_H_
