// A number, or a tensor of one element in its place, as Python's learning rates are.

#ifndef LOCKSTEP_OPTIM_NUMBER_H_
#define LOCKSTEP_OPTIM_NUMBER_H_

#include <ATen/core/Tensor.h>

#include <type_traits>

namespace lockstep::optim {

// Computes with a tensor as Python does: in the tensor's dtype. So a learning rate in a float32 tensor has other bits
// than the number. Copies share the tensor.
//
//   AdamWOptions options;
//   options.lr(1e-3);                                  // a number
//   options.lr(at::full({}, 1e-3));                    // a tensor, which the program may fill between steps
//   const double rate = options.lr();
class Number {
 public:
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Number(T value) : value_(static_cast<double>(value)) {}  // NOLINT(google-explicit-constructor)
  // Throws c10::ValueError unless the tensor has one element.
  Number(const at::Tensor& tensor);  // NOLINT(google-explicit-constructor)

  // Waits for the device of a tensor.
  operator double() const;  // NOLINT(google-explicit-constructor)

  bool is_tensor() const { return tensor_.defined(); }
  // Undefined if this is a number. It has no dimensions.
  const at::Tensor& tensor() const { return tensor_; }
  // Fills the tensor, or replaces the number.
  void Set(double value);

  Number Times(double factor) const;
  Number DividedBy(double divisor) const;
  Number SubtractedFrom(double minuend) const;

 private:
  double value_ = 0;
  at::Tensor tensor_;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_NUMBER_H_
