#include "lockstep/checkpoint/archive/objects.h"

#include <ATen/ops/_empty_affine_quantized.h>
#include <ATen/ops/_empty_per_channel_affine_quantized.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::archive {
namespace {

using pickle::PickleGraph;
using pickle::PickleKind;
using pickle::PickleNode;
using pickle::PickleObject;

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

const std::vector<PickleNode>* Items(const PickleGraph& graph, PickleNode node) {
  const bool sequence = node.kind == PickleKind::kTuple || node.kind == PickleKind::kList;
  return sequence ? &graph.sequences[node.index] : nullptr;
}

std::optional<absl::string_view> TextOf(const PickleGraph& graph, PickleNode node, PickleKind kind) {
  return node.kind == kind ? std::optional<absl::string_view>(graph.strings[node.index]) : std::nullopt;
}

struct NumpyType {
  absl::string_view code;
  at::ScalarType type;
};

constexpr NumpyType kNumpyTypes[] = {
    {"b1", at::kBool},         {"i1", at::kChar},           {"i2", at::kShort},  {"i4", at::kInt},
    {"i8", at::kLong},         {"u1", at::kByte},           {"u2", at::kUInt16}, {"u4", at::kUInt32},
    {"u8", at::kUInt64},       {"f2", at::kHalf},           {"f4", at::kFloat},  {"f8", at::kDouble},
    {"c8", at::kComplexFloat}, {"c16", at::kComplexDouble},
};

// numpy.dtype(code, align, copy), whose state begins with a version and the byte order.
struct NumpyDtype {
  absl::string_view code;
  absl::string_view order;
};

absl::StatusOr<NumpyDtype> ParseDtype(const PickleGraph& graph, const PickleObject& object) {
  const std::vector<PickleNode>* arguments = Items(graph, object.arguments);
  const std::vector<PickleNode>* state = Items(graph, object.state);
  const auto code =
      arguments && !arguments->empty() ? TextOf(graph, arguments->front(), PickleKind::kString) : std::nullopt;
  if (object.name != "dtype" || !code) return Malformed("a numpy dtype without a name");
  if (!state || state->size() < 2) return NumpyDtype{*code, "|"};
  const auto order = TextOf(graph, (*state)[1], PickleKind::kString);
  if (!order) return Malformed("a numpy dtype without a byte order");
  return NumpyDtype{*code, *order};
}

absl::StatusOr<NumpyDtype> ParseDtype(const PickleGraph& graph, PickleNode node) {
  if (node.kind != PickleKind::kObject) return Malformed("a numpy dtype is expected here");
  return ParseDtype(graph, graph.objects[node.index]);
}

absl::StatusOr<at::ScalarType> TypeOf(const NumpyDtype& dtype) {
  const auto* const found = std::find_if(std::begin(kNumpyTypes), std::end(kNumpyTypes),
                                         [&](const NumpyType& known) { return known.code == dtype.code; });
  if (found == std::end(kNumpyTypes)) {
    return absl::UnimplementedError(
        absl::StrCat("a numpy dtype \"", dtype.code.substr(0, 40), "\" is not supported; save a list"));
  }
  if (dtype.order == ">")
    return absl::UnimplementedError("big-endian numbers of numpy are not supported; save x.astype(x.dtype.name)");
  return found->type;
}

// A tensor with a copy of `bytes`, which are its elements in the order of C, or of Fortran.
absl::StatusOr<at::Tensor> FromBytes(absl::string_view bytes, at::ScalarType type, const std::vector<int64_t>& sizes,
                                     bool fortran) {
  uint64_t count = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(count, static_cast<uint64_t>(size), &count))
      return Malformed("an array's shape is out of range");
  }
  if (sizes.size() > 64 || bytes.size() % c10::elementSize(type) != 0 || count != bytes.size() / c10::elementSize(type))
    return Malformed(absl::StrCat("an array of ", count, " elements has ", bytes.size(), " bytes"));
  return TorchStatusOr("", [&] {
    const std::vector<int64_t> order = fortran ? std::vector<int64_t>(sizes.rbegin(), sizes.rend()) : sizes;
    at::Tensor made = at::empty(order, at::TensorOptions().dtype(type));
    if (!bytes.empty()) std::memcpy(made.data_ptr(), bytes.data(), bytes.size());
    std::vector<int64_t> reversed(sizes.size());
    for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = static_cast<int64_t>(reversed.size() - 1 - i);
    return fortran ? made.permute(reversed) : made;
  });
}

Value ScalarOf(const at::Tensor& scalar) {
  if (scalar.scalar_type() == at::kBool) return Value(scalar.item<bool>());
  if (scalar.is_complex()) return Value(scalar.to(at::kComplexDouble));
  if (scalar.is_floating_point()) return Value(scalar.item<double>());
  if (scalar.scalar_type() != at::kUInt64) return Value(scalar.item<int64_t>());
  uint64_t number;
  std::memcpy(&number, scalar.data_ptr(), sizeof(number));
  // As any int of more than 64 bits with its sign.
  return number > INT64_MAX ? Value(absl::StrCat(number)) : Value(static_cast<int64_t>(number));
}

// numpy's scalar(dtype, bytes).
absl::StatusOr<Value> NumpyScalar(const PickleGraph& graph, const std::vector<PickleNode>& arguments) {
  if (arguments.size() != 2) return Malformed("a numpy scalar with a wrong argument count");
  LOCKSTEP_ASSIGN_OR_RETURN(const NumpyDtype dtype, ParseDtype(graph, arguments[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::ScalarType type, TypeOf(dtype));
  const auto bytes = TextOf(graph, arguments[1], PickleKind::kBytes);
  if (!bytes) return Malformed("a numpy scalar without its bytes");
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor scalar, FromBytes(*bytes, type, {}, false));
  return ScalarOf(scalar);
}

absl::StatusOr<Value> NumpyArray(const PickleGraph& graph, PickleNode shape, PickleNode dtype_node,
                                 PickleNode bytes_node, bool fortran) {
  LOCKSTEP_ASSIGN_OR_RETURN(const NumpyDtype dtype, ParseDtype(graph, dtype_node));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::ScalarType type, TypeOf(dtype));
  const std::vector<PickleNode>* dimensions = Items(graph, shape);
  const auto bytes = TextOf(graph, bytes_node, PickleKind::kBytes);
  if (!dimensions || !bytes) return Malformed("a numpy array without its shape or its bytes");
  std::vector<int64_t> sizes;
  for (const PickleNode size : *dimensions) {
    if (size.kind != PickleKind::kInt) return Malformed("a numpy array with a shape that is not of ints");
    sizes.push_back(size.integer);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor made, FromBytes(*bytes, type, sizes, fortran));
  return Value(std::move(made));
}

// _reconstruct(type, shape, code), whose state is (version, shape, dtype, whether in Fortran's order, bytes).
absl::StatusOr<Value> Reconstructed(const PickleGraph& graph, PickleNode node) {
  const std::vector<PickleNode>* state = Items(graph, node);
  if (!state || state->size() != 5 || (*state)[3].kind != PickleKind::kBool)
    return Malformed("a numpy array without its state");
  return NumpyArray(graph, (*state)[1], (*state)[2], (*state)[4], (*state)[3].boolean);
}

// _frombuffer(bytes, dtype, shape, order), of protocol 5.
absl::StatusOr<Value> FromBuffer(const PickleGraph& graph, const std::vector<PickleNode>& arguments) {
  if (arguments.size() != 4) return Malformed("a numpy array with a wrong argument count");
  const auto order = TextOf(graph, arguments[3], PickleKind::kString);
  if (!order) return Malformed("a numpy array without an order");
  return NumpyArray(graph, arguments[2], arguments[1], arguments[0], *order == "F");
}

absl::StatusOr<double> Real(PickleNode node) {
  if (node.kind == PickleKind::kDouble) return node.real;
  if (node.kind == PickleKind::kInt) return static_cast<double>(node.integer);
  return Malformed("a number is expected here");
}

absl::StatusOr<Value> Complex(const std::vector<PickleNode>& arguments) {
  if (arguments.size() != 2) return Malformed("a complex number with a wrong argument count");
  LOCKSTEP_ASSIGN_OR_RETURN(const double real, Real(arguments[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(const double imaginary, Real(arguments[1]));
  const c10::complex<double> number(real, imaginary);
  const absl::string_view bytes(reinterpret_cast<const char*>(&number), sizeof(number));
  LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor made, FromBytes(bytes, at::kComplexDouble, {}, false));
  return Value(std::move(made));
}

absl::StatusOr<std::vector<int64_t>> Ints(const Value& value) {
  if (!value.is_tuple() && !value.is_list()) return Malformed("a tuple of ints is expected here");
  std::vector<int64_t> ints;
  for (const Value& item : value.items()) {
    if (!item.is_int()) return Malformed("a tuple of ints is expected here");
    ints.push_back(item.int_value());
  }
  return ints;
}

struct SparseLayout {
  absl::string_view name;
  at::Layout layout;
};

constexpr SparseLayout kCompressed[] = {{"torch.sparse_csr", at::kSparseCsr},
                                        {"torch.sparse_csc", at::kSparseCsc},
                                        {"torch.sparse_bsr", at::kSparseBsr},
                                        {"torch.sparse_bsc", at::kSparseBsc}};

absl::Status AsDamage(const absl::Status& status) { return status.ok() ? status : Malformed(status.message()); }

template <typename Make>
absl::StatusOr<at::Tensor> Made(Make make) {
  absl::StatusOr<at::Tensor> made = TorchStatusOr("", make);
  if (!made.ok()) return AsDamage(made.status());
  return made;
}

absl::StatusOr<at::Tensor> MakeCoo(const std::vector<Value>& parts) {
  if (parts.size() < 3 || parts.size() > 4 || !parts[0].is_tensor() || !parts[1].is_tensor())
    return Malformed("a sparse tensor without its indices and values");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, Ints(parts[2]));
  const bool coalesced = parts.size() == 4 && parts[3].is_bool() && parts[3].bool_value();
  const at::Tensor& indices = parts[0].tensor();
  const at::Tensor& values = parts[1].tensor();
  return Made([&] {
    at::_validate_sparse_coo_tensor_args(indices, values, sizes, coalesced);
    return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse), coalesced);
  });
}

absl::StatusOr<at::Tensor> MakeCompressed(at::Layout layout, const std::vector<Value>& parts) {
  if (parts.size() != 4 || !parts[0].is_tensor() || !parts[1].is_tensor() || !parts[2].is_tensor())
    return Malformed("a sparse tensor without its indices and values");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, Ints(parts[3]));
  const at::Tensor &compressed = parts[0].tensor(), &plain = parts[1].tensor(), &values = parts[2].tensor();
  return Made([&] {
    at::_validate_sparse_compressed_tensor_args(compressed, plain, values, sizes, layout);
    return at::_sparse_compressed_tensor_unsafe(compressed, plain, values, sizes, values.options().layout(layout));
  });
}

absl::StatusOr<at::Tensor> Scales(const Value& value, at::ScalarType type) {
  if (value.is_tensor()) return value.tensor();
  if (!value.is_list()) return Malformed("a quantized tensor without its scales");
  std::vector<double> numbers;
  for (const Value& item : value.items()) {
    if (!item.is_double() && !item.is_int()) return Malformed("a quantized tensor with a scale that is not a number");
    numbers.push_back(item.is_double() ? item.double_value() : static_cast<double>(item.int_value()));
  }
  return TorchStatusOr("", [&] { return at::tensor(numbers, at::kDouble).to(type); });
}

absl::StatusOr<at::Tensor> EmptyPerChannel(const QuantizedView& view, const std::vector<Value>& parameters,
                                           const at::TensorOptions& options, bool float_parameters) {
  if (parameters.size() != 4 || !parameters[3].is_int()) return Malformed("a quantized tensor without its axis");
  const int64_t axis = parameters[3].int_value();
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor scales,
                            Scales(parameters[1], float_parameters ? at::kFloat : at::kDouble));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor zero_points,
                            Scales(parameters[2], float_parameters ? at::kFloat : at::kLong));
  if (axis < 0 || axis >= static_cast<int64_t>(view.sizes.size()) || scales.numel() != view.sizes[axis] ||
      zero_points.numel() != view.sizes[axis])
    return Malformed("a quantized tensor with another number of scales than channels");
  return Made([&] {
    const std::vector<int64_t> none(view.sizes.size(), 0);
    return at::_empty_per_channel_affine_quantized(none, scales, zero_points, axis, options);
  });
}

absl::StatusOr<at::Tensor> EmptyQuantized(const QuantizedView& view, const std::vector<Value>& parameters) {
  if (parameters.empty() || !parameters[0].is_string()) return Malformed("a quantized tensor without its scheme");
  const std::string& scheme = parameters[0].string_value();
  const at::TensorOptions options = at::TensorOptions(view.storage.device()).dtype(view.type);
  const bool float_parameters = scheme == "torch.per_channel_affine_float_qparams";
  if (float_parameters || scheme == "torch.per_channel_affine")
    return EmptyPerChannel(view, parameters, options, float_parameters);
  if (scheme != "torch.per_tensor_affine")
    return absl::UnimplementedError(absl::StrCat("a quantized tensor of the scheme ", scheme, " is not supported"));
  if (parameters.size() != 3 || !parameters[1].is_double() || !parameters[2].is_int())
    return Malformed("a quantized tensor without its scale and zero point");
  return Made([&] {
    return at::_empty_affine_quantized({0}, options, parameters[1].double_value(), parameters[2].int_value());
  });
}

}  // namespace

const pickle::PickleClasses& ObjectClasses() {
  static const auto& classes = *new pickle::PickleClasses{
      {"__builtin__", "complex"},
      {"builtins", "complex"},
      {"torch._utils", "_rebuild_sparse_tensor"},
      {"torch._utils", "_rebuild_qtensor"},
      {"numpy", "dtype"},
      {"numpy", "ndarray"},
      {"numpy.core.multiarray", "scalar"},
      {"numpy._core.multiarray", "scalar"},
      {"numpy.core.multiarray", "_reconstruct"},
      {"numpy._core.multiarray", "_reconstruct"},
      {"numpy.core.numeric", "_frombuffer"},
      {"numpy._core.numeric", "_frombuffer"},
  };
  return classes;
}

bool IsSparse(const PickleObject& object) { return object.name == "_rebuild_sparse_tensor"; }

bool IsQuantized(const PickleObject& object) { return object.name == "_rebuild_qtensor"; }

absl::StatusOr<Value> MakeConstant(const PickleGraph& graph, const PickleObject& object) {
  const std::vector<PickleNode>& arguments = *Items(graph, object.arguments);
  if (object.name == "complex") return Complex(arguments);
  if (object.name == "scalar") return NumpyScalar(graph, arguments);
  if (object.name == "_reconstruct") return Reconstructed(graph, object.state);
  if (object.name == "_frombuffer") return FromBuffer(graph, arguments);
  if (object.name != "dtype")
    return absl::UnimplementedError(absl::StrCat("a ", object.module, ".", object.name, " is not supported"));
  LOCKSTEP_ASSIGN_OR_RETURN(const NumpyDtype dtype, ParseDtype(graph, object));
  return Value(absl::StrCat(dtype.order, dtype.code));
}

absl::StatusOr<at::Tensor> MakeSparse(absl::string_view layout, const std::vector<Value>& parts) {
  if (layout == "torch.sparse_coo") return MakeCoo(parts);
  for (const SparseLayout& known : kCompressed) {
    if (known.name == layout) return MakeCompressed(known.layout, parts);
  }
  return absl::UnimplementedError(absl::StrCat("a tensor of the layout ", layout.substr(0, 40), " is not supported"));
}

at::ScalarType QuantizedType(absl::string_view storage) {
  if (storage == "QInt8Storage") return at::kQInt8;
  if (storage == "QUInt8Storage") return at::kQUInt8;
  return storage == "QInt32Storage" ? at::kQInt32 : at::ScalarType::Undefined;
}

absl::StatusOr<at::Tensor> MakeQuantized(const QuantizedView& view, const std::vector<Value>& parameters) {
  LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor made, EmptyQuantized(view, parameters));
  return Made([&] { return made.set_(view.storage, view.offset, view.sizes, view.strides); });
}

}  // namespace lockstep::checkpoint::archive
