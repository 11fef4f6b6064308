#include "lockstep/models/exported/input_checks.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"

namespace lockstep::models::exported {
namespace {

using Kind = Argument::Kind;

// True if `value` is the constant that the export recorded.
bool IsConstant(const Argument& constant, const c10::IValue& value) {
  switch (constant.kind) {
    case Kind::kNone:
      return value.isNone();
    case Kind::kBool:
      return value.isBool() && value.toBool() == (constant.integer != 0);
    case Kind::kInt:
      return value.isInt() && value.toInt() == constant.integer;
    case Kind::kFloat:
      return (value.isDouble() && value.toDouble() == constant.real) ||
             (value.isInt() && static_cast<double>(value.toInt()) == constant.real);
    case Kind::kString:
      return value.isString() && value.toStringRef() == constant.text;
    default:
      return true;
  }
}

std::string TextOf(const Argument& constant) {
  switch (constant.kind) {
    case Kind::kBool:
      return constant.integer ? "true" : "false";
    case Kind::kInt:
      return absl::StrCat(constant.integer);
    case Kind::kFloat:
      return absl::StrCat(constant.real);
    case Kind::kString:
      return constant.text;
    default:
      return "None";
  }
}

}  // namespace

InputChecks::InputChecks(const ExportedGraph& program) : ranges_(program.ranges) {
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec::Kind kind = program.inputs[i].kind;
    if (kind != InputSpec::Kind::kUserInput && kind != InputSpec::Kind::kConstantInput) continue;
    const Argument& argument = program.graph.inputs[i];
    Input input;
    if (argument.kind == Kind::kValue) {
      const Value& value = program.graph.values[argument.value];
      input.name = value.name;
      input.is_tensor = value.tensor.has_value();
      if (value.tensor) {
        for (const Extent& extent : value.tensor->sizes) {
          Size size{extent.number};
          for (size_t j = 0; j < ranges_.size(); ++j) {
            if (!extent.symbol.empty() && ranges_[j].symbol == extent.symbol) size.symbol = static_cast<int32_t>(j);
          }
          input.sizes.push_back(size);
        }
      }
    } else {
      input.name = program.inputs[i].target;
    }
    input.constant = argument;
    inputs_.push_back(std::move(input));
  }
}

absl::Status InputChecks::CheckRange(const Input& input, size_t dimension, int64_t size,
                                     const RangeConstraint& range) const {
  const bool below = range.min && *range.min > 2 && size < *range.min;
  const bool above = range.max && size > *range.max;
  if (!below && !above) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dimension ", dimension, " of input \"", input.name, "\" is ", size,
                   ", and the program was exported for ", range.min ? absl::StrCat(*range.min) : "0", " to ",
                   range.max ? absl::StrCat(*range.max) : "any size", " (", range.symbol, ")"));
}

absl::Status InputChecks::CheckTensor(const Input& input, const c10::IValue& leaf, std::vector<int64_t>& found) const {
  if (!leaf.isTensor() || !leaf.toTensor().defined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", input.name, "\" is ", leaf.tagKind(), ", expected a tensor"));
  }
  const at::IntArrayRef sizes = leaf.toTensor().sizes();
  if (sizes.size() != input.sizes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("input \"", input.name, "\" has shape [", absl::StrJoin(sizes, ", "),
                                                   "], and the program was exported for ", input.sizes.size(),
                                                   " dimensions"));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Size& wanted = input.sizes[i];
    if (wanted.fixed >= 0 && wanted.fixed != sizes[i]) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " of input \"", input.name, "\" is ", sizes[i],
                                                     ", and the program was exported for ", wanted.fixed,
                                                     "; give torch.export.export dynamic_shapes to let it vary"));
    }
    if (wanted.symbol < 0) continue;
    int64_t& bound = found[wanted.symbol];
    if (bound < 0) {
      bound = sizes[i];
      LOCKSTEP_RETURN_IF_ERROR(CheckRange(input, i, sizes[i], ranges_[wanted.symbol]));
    } else if (bound != sizes[i]) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " of input \"", input.name, "\" is ", sizes[i],
                                                     ", and an equal one (", ranges_[wanted.symbol].symbol, ") is ",
                                                     bound));
    }
  }
  return absl::OkStatus();
}

absl::Status InputChecks::Check(const std::vector<c10::IValue>& leaves) const {
  std::vector<int64_t> found(ranges_.size(), -1);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.is_tensor) {
      LOCKSTEP_RETURN_IF_ERROR(CheckTensor(input, leaves[i], found));
    } else if (input.constant.kind == Kind::kValue) {
      if (!leaves[i].isScalar()) {
        return absl::InvalidArgumentError(
            absl::StrCat("input \"", input.name, "\" is ", leaves[i].tagKind(), ", expected a number"));
      }
    } else if (!IsConstant(input.constant, leaves[i])) {
      return absl::InvalidArgumentError(absl::StrCat("input \"", input.name, "\" is another value than ",
                                                     TextOf(input.constant), ", for which the program was exported"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::models::exported
