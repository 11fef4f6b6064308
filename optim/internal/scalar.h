// A number of a Python program: a float, or a tensor without dimensions.

#ifndef LOCKSTEP_OPTIM_INTERNAL_SCALAR_H_
#define LOCKSTEP_OPTIM_INTERNAL_SCALAR_H_

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/le.h>
#include <ATen/ops/lt.h>

#include <cmath>
#include <utility>

namespace lockstep::optim::internal {

// Operators round as Python's: floats in double, and a tensor with a float or a tensor in the tensor's dtype. Comparisons
// too. Python's sums and products have the tensor first: ATen rounds a float that is first to bfloat16.
class Scalar {
 public:
  Scalar(double number) : number_(number) {}                 // NOLINT(google-explicit-constructor)
  Scalar(at::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT(google-explicit-constructor)

  bool is_tensor() const { return tensor_.defined(); }
  double value() const { return is_tensor() ? tensor_.item<double>() : number_; }
  // A float's tensor takes the dtype of a tensor that it meets.
  at::Tensor tensor() const { return is_tensor() ? tensor_ : at::native::wrapped_scalar_tensor(number_); }

  friend Scalar operator+(const Scalar& a, const Scalar& b) {
    if (Floats(a, b)) return a.number_ + b.number_;
    return a.is_tensor() ? a.tensor() + b.tensor() : b.tensor() + a.tensor();
  }
  friend Scalar operator-(const Scalar& a, const Scalar& b) {
    return Floats(a, b) ? Scalar(a.number_ - b.number_) : a.tensor() - b.tensor();
  }
  friend Scalar operator*(const Scalar& a, const Scalar& b) {
    if (Floats(a, b)) return a.number_ * b.number_;
    return a.is_tensor() ? a.tensor() * b.tensor() : b.tensor() * a.tensor();
  }
  // Python multiplies a tensor's reciprocal by a float.
  friend Scalar operator/(const Scalar& a, const Scalar& b) {
    if (Floats(a, b)) return a.number_ / b.number_;
    return a.is_tensor() ? a.tensor() / b.tensor() : b.tensor().reciprocal() * a.tensor();
  }
  friend bool operator<(const Scalar& a, const Scalar& b) {
    return Floats(a, b) ? a.number_ < b.number_ : at::lt(a.tensor(), b.tensor()).item<bool>();
  }
  friend bool operator<=(const Scalar& a, const Scalar& b) {
    return Floats(a, b) ? a.number_ <= b.number_ : at::le(a.tensor(), b.tensor()).item<bool>();
  }
  friend Scalar Abs(const Scalar& a) { return a.is_tensor() ? Scalar(a.tensor_.abs()) : std::abs(a.number_); }
  friend Scalar Sqrt(const Scalar& a) { return a.is_tensor() ? Scalar(a.tensor_.sqrt()) : std::sqrt(a.number_); }

 private:
  static bool Floats(const Scalar& a, const Scalar& b) { return !a.is_tensor() && !b.is_tensor(); }

  double number_ = 0;
  at::Tensor tensor_;
};

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_SCALAR_H_
