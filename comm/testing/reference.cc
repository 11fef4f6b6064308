#include "lockstep/comm/testing/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <complex>
#include <cstdint>

namespace lockstep::comm::testing {
namespace {

using Complex = std::complex<double>;

// A number of any dtype.
struct Number {
  Complex real_or_complex;
  int64_t whole = 0;
};

Number At(const at::Tensor& flat, int64_t index) {
  const at::Tensor one = flat.slice(0, index, index + 1);
  const auto complex = *static_cast<const Complex*>(one.to(at::kComplexDouble).data_ptr());
  return {complex, static_cast<int64_t>(complex.real())};
}

double Smaller(const Complex& a, const Complex& b) { return std::min(a.real(), b.real()); }
double Larger(const Complex& a, const Complex& b) { return std::max(a.real(), b.real()); }

Complex Combined(const Number& a, const Number& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a.real_or_complex + b.real_or_complex;
    case ReduceOp::kProduct:
      return a.real_or_complex * b.real_or_complex;
    case ReduceOp::kMin:
      return Smaller(a.real_or_complex, b.real_or_complex);
    case ReduceOp::kMax:
      return Larger(a.real_or_complex, b.real_or_complex);
    case ReduceOp::kBand:
      return static_cast<double>(a.whole & b.whole);
    case ReduceOp::kBor:
      return static_cast<double>(a.whole | b.whole);
    case ReduceOp::kBxor:
      return static_cast<double>(a.whole ^ b.whole);
  }
  return 0;
}

}  // namespace

const std::vector<at::ScalarType>& AllDtypes() {
  static const auto* const dtypes = new std::vector<at::ScalarType>{
      at::kByte,     at::kChar,        at::kShort,         at::kInt,          at::kLong,          at::kHalf,
      at::kFloat,    at::kDouble,      at::kComplexHalf,   at::kComplexFloat, at::kComplexDouble, at::kBool,
      at::kBFloat16, at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kUInt16,       at::kUInt32,        at::kUInt64};
  return *dtypes;
}

at::Tensor Input(int rank, int size, at::IntArrayRef shape, at::ScalarType dtype, int seed) {
  const at::Tensor values = at::empty(shape, at::kLong);
  auto* const data = static_cast<int64_t*>(values.data_ptr());
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = (i + seed + 2 * rank * (i % 5 + 1)) % 3;
  if (dtype == at::kBool) return values.gt(0);
  if (at::isIntegralType(dtype, /*includeBool=*/false)) return values.to(dtype);
  const at::Tensor multiples = values.to(at::kDouble).mul(size);
  return at::isComplexType(dtype) ? at::complex(multiples, multiples).to(dtype) : multiples.to(dtype);
}

at::Tensor Reduced(const std::vector<at::Tensor>& inputs, ReduceOp op) {
  const at::Tensor result = at::empty(inputs[0].sizes(), at::kComplexDouble);
  auto* const data = static_cast<Complex*>(result.data_ptr());
  std::vector<at::Tensor> flat;
  for (const at::Tensor& input : inputs) flat.push_back(input.reshape({-1}));
  for (int64_t i = 0; i < result.numel(); ++i) {
    Number sum = At(flat[0], i);
    for (size_t rank = 1; rank < flat.size(); ++rank) {
      const Complex combined = Combined(sum, At(flat[rank], i), op);
      sum = {combined, static_cast<int64_t>(combined.real())};
    }
    data[i] = op == ReduceOp::kAvg ? sum.real_or_complex / static_cast<double>(inputs.size()) : sum.real_or_complex;
  }
  const at::ScalarType dtype = inputs[0].scalar_type();
  if (dtype == at::kBool) return at::real(result).ne(0);
  return at::isComplexType(dtype) ? result.to(dtype) : at::real(result).to(dtype);
}

bool Same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.to(at::kComplexDouble).equal(b.to(at::kComplexDouble));
}

}  // namespace lockstep::comm::testing
