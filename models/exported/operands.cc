#include "lockstep/models/exported/operands.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pt2/payload.h"
#include "lockstep/checkpoint/pt2/tensors.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::pt2::DeviceOfSchema;
using checkpoint::pt2::DtypeOfSchema;
using Kind = Argument::Kind;

// Python passes a number where a tensor is expected as a tensor that does not take part in the choice of the dtype.
at::Tensor TensorOfNumber(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool IsNumber(const Argument& argument) {
  return argument.kind == Kind::kInt || argument.kind == Kind::kFloat || argument.kind == Kind::kBool ||
         argument.kind == Kind::kComplex;
}

absl::StatusOr<int64_t> LayoutOfSchema(int64_t number) {
  if (number == checkpoint::pt2::kStridedLayout) return static_cast<int64_t>(c10::Layout::Strided);
  return absl::UnimplementedError(absl::StrCat("layout ", number, " of the schema is not supported, only strided"));
}

absl::StatusOr<int64_t> MemoryFormatOfSchema(int64_t number) {
  constexpr c10::MemoryFormat kFormats[] = {c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
                                            c10::MemoryFormat::ChannelsLast3d, c10::MemoryFormat::Preserve};
  if (number < 1 || number > 4) return absl::DataLossError(absl::StrCat("there is no memory format ", number));
  return static_cast<int64_t>(kFormats[number - 1]);
}

// A constant as it is.
absl::StatusOr<c10::IValue> Plain(const Argument& argument, std::optional<c10::Device> moved) {
  switch (argument.kind) {
    case Kind::kNone:
      return c10::IValue();
    case Kind::kBool:
      return c10::IValue(argument.integer != 0);
    case Kind::kInt:
      return c10::IValue(argument.integer);
    case Kind::kFloat:
      return c10::IValue(argument.real);
    case Kind::kComplex:
      return c10::IValue(c10::complex<double>(argument.real, argument.imaginary));
    case Kind::kString:
    case Kind::kOperator:
      return c10::IValue(argument.text);
    case Kind::kDtype: {
      LOCKSTEP_ASSIGN_OR_RETURN(const c10::ScalarType dtype, DtypeOfSchema(argument.integer));
      return c10::IValue(static_cast<int64_t>(dtype));
    }
    case Kind::kLayout: {
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t layout, LayoutOfSchema(argument.integer));
      return c10::IValue(layout);
    }
    case Kind::kMemoryFormat: {
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t format, MemoryFormatOfSchema(argument.integer));
      return c10::IValue(format);
    }
    case Kind::kDevice: {
      LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, DeviceOfSchema(argument.text, argument.integer, moved));
      return c10::IValue(device);
    }
    default:
      return absl::DataLossError("a graph, object or list where a constant is expected");
  }
}

absl::Status WrongType(const c10::Type& type) {
  return absl::DataLossError(absl::StrCat("it does not have the type ", type.str()));
}

Operand Constant(c10::IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}

Operand Slot(int32_t slot) {
  Operand operand;
  operand.kind = Operand::Kind::kSlot;
  operand.slot = slot;
  return operand;
}

template <typename T, typename F>
Operand ConstantList(const std::vector<Argument>& items, F value) {
  c10::List<T> list;
  list.reserve(items.size());
  for (const Argument& item : items) list.push_back(value(item));
  return Constant(std::move(list));
}

absl::StatusOr<Operand> ListOfSlots(const Graph& graph, const Argument& argument, const c10::Type& element,
                                    Operand::Kind kind, std::optional<c10::Device> moved) {
  Operand operand;
  operand.kind = kind;
  for (const Argument& item : argument.items) {
    LOCKSTEP_ASSIGN_OR_RETURN(Operand made, MakeOperand(graph, item, element, std::nullopt, moved));
    operand.items.push_back(std::move(made));
  }
  return operand;
}

absl::StatusOr<Operand> MakeList(const Graph& graph, const Argument& argument, const c10::Type& type,
                                 std::optional<int32_t> size, std::optional<c10::Device> moved) {
  const c10::Type& element = *type.castRaw<c10::ListType>()->getElementType();
  if (argument.kind != Kind::kList) {
    if (!size || !(IsNumber(argument) || argument.kind == Kind::kValue)) return WrongType(type);
    Argument repeated;
    repeated.kind = Kind::kList;
    repeated.items.assign(*size, argument);
    return MakeList(graph, repeated, type, {}, moved);
  }
  bool integers = true, reals = true;
  for (const Argument& item : argument.items) {
    integers = integers && (item.kind == Kind::kInt || item.kind == Kind::kBool);
    reals = reals && IsNumber(item) && item.kind != Kind::kComplex;
  }
  switch (element.kind()) {
    case c10::TypeKind::TensorType:
      return ListOfSlots(graph, argument, element, Operand::Kind::kTensorList, moved);
    case c10::TypeKind::OptionalType:
      return ListOfSlots(graph, argument, element, Operand::Kind::kOptionalTensorList, moved);
    case c10::TypeKind::IntType:
      if (integers) return ConstantList<int64_t>(argument.items, [](const Argument& item) { return item.integer; });
      return ListOfSlots(graph, argument, element, Operand::Kind::kIntList, moved);
    case c10::TypeKind::FloatType:
      if (!reals) break;
      return ConstantList<double>(argument.items, [](const Argument& item) {
        return item.kind == Kind::kFloat ? item.real : static_cast<double>(item.integer);
      });
    case c10::TypeKind::BoolType:
      if (!integers) break;
      return ConstantList<bool>(argument.items, [](const Argument& item) { return item.integer != 0; });
    case c10::TypeKind::StringType:
      return ConstantList<std::string>(argument.items, [](const Argument& item) { return item.text; });
    default:
      break;
  }
  return absl::UnimplementedError(absl::StrCat("a list of type ", type.str(), " is not supported"));
}

// An operand that is a value of the graph.
absl::StatusOr<Operand> MakeSlot(const Graph& graph, int32_t value, const c10::Type& type) {
  Operand operand = Slot(value);
  const bool is_tensor = graph.values[value].tensor.has_value();
  if (type.kind() == c10::TypeKind::TensorType && !is_tensor) operand.kind = Operand::Kind::kTensorOfNumber;
  if (type.kind() == c10::TypeKind::FloatType && !is_tensor) operand.kind = Operand::Kind::kDoubleOfNumber;
  const bool takes_tensor = type.kind() == c10::TypeKind::TensorType || type.kind() == c10::TypeKind::AnyType;
  if (is_tensor && !takes_tensor) return WrongType(type);
  return operand;
}

c10::IValue DoubleOf(const c10::IValue& number) {
  return number.isInt() ? c10::IValue(static_cast<double>(number.toInt())) : number;
}

}  // namespace

absl::StatusOr<Operand> MakeOperand(const Graph& graph, const Argument& argument, const c10::Type& type,
                                    std::optional<int32_t> list_size, std::optional<c10::Device> moved) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    if (argument.kind == Kind::kNone) return Operand();
    return MakeOperand(graph, argument, *type.castRaw<c10::OptionalType>()->getElementType(), list_size, moved);
  }
  if (type.kind() == c10::TypeKind::ListType) return MakeList(graph, argument, type, list_size, moved);
  if (argument.kind == Kind::kValue) return MakeSlot(graph, argument.value, type);
  if (argument.kind == Kind::kNone && type.kind() == c10::TypeKind::TensorType) return Constant(at::Tensor());
  if (argument.kind == Kind::kList || argument.kind == Kind::kGraph) return WrongType(type);
  LOCKSTEP_ASSIGN_OR_RETURN(c10::IValue plain, Plain(argument, moved));
  bool right = true;
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      if (!IsNumber(argument)) return WrongType(type);
      return Constant(TensorOfNumber(plain.toScalar()));
    case c10::TypeKind::FloatType:
      right = argument.kind == Kind::kFloat || argument.kind == Kind::kInt;
      if (right) plain = DoubleOf(plain);
      break;
    case c10::TypeKind::IntType:
      // A dtype, layout or memory format is an integer to the dispatcher.
      right = plain.isInt();
      break;
    case c10::TypeKind::BoolType:
      right = plain.isBool();
      break;
    case c10::TypeKind::NumberType:
      right = IsNumber(argument);
      break;
    case c10::TypeKind::StringType:
      right = plain.isString();
      break;
    case c10::TypeKind::DeviceObjType:
      right = plain.isDevice();
      break;
    default:
      right = false;
  }
  if (!right) return WrongType(type);
  return Constant(std::move(plain));
}

absl::StatusOr<Operand> MakeUntypedOperand(const Argument& argument, std::optional<c10::Device> moved) {
  if (argument.kind == Kind::kValue) return Slot(argument.value);
  LOCKSTEP_ASSIGN_OR_RETURN(c10::IValue plain, Plain(argument, moved));
  return Constant(std::move(plain));
}

void PushMade(const Operand& operand, Frame& frame, torch::jit::Stack& stack) {
  const auto take = [&](const Operand& item) -> c10::IValue {
    if (item.kind == Operand::Kind::kConstant) return item.constant;
    if (item.last) return std::move(frame[item.slot]);
    return frame[item.slot];
  };
  switch (operand.kind) {
    case Operand::Kind::kTensorOfNumber:
      stack.emplace_back(TensorOfNumber(frame[operand.slot].toScalar()));
      return;
    case Operand::Kind::kDoubleOfNumber:
      stack.push_back(DoubleOf(frame[operand.slot]));
      return;
    case Operand::Kind::kIntList: {
      c10::List<int64_t> list;
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items) list.push_back(take(item).toInt());
      stack.emplace_back(std::move(list));
      return;
    }
    case Operand::Kind::kTensorList: {
      c10::List<at::Tensor> list;
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items) list.push_back(take(item).toTensor());
      stack.emplace_back(std::move(list));
      return;
    }
    case Operand::Kind::kOptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(operand.items.size());
      for (const Operand& item : operand.items) list.push_back(take(item).toOptional<at::Tensor>());
      stack.emplace_back(std::move(list));
      return;
    }
    case Operand::Kind::kConstant:
    case Operand::Kind::kSlot:
      Push(operand, frame, stack);
  }
}

}  // namespace lockstep::models::exported
