#include "lockstep/examples/exported/rows.h"

#include <ATen/ops/arange.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;

std::string Shape(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

absl::Status CheckRows(const at::Tensor& tensor, const at::Tensor& first) {
  if (tensor.dim() > 0 && first.dim() > 0 && first.size(0) > 0 && tensor.size(0) == first.size(0))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected tensors with equally many rows, found the shapes ", Shape(first), " and ", Shape(tensor)));
}

absl::StatusOr<Rows> RowsOf(const Value& file, bool with_targets) {
  Rows rows;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> inputs, checkpoint::GetItems(file, "inputs"));
  if (inputs.empty()) return absl::InvalidArgumentError("[\"inputs\"]: expected tensors, found none");
  for (size_t i = 0; i < inputs.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor input, checkpoint::GetTensor(file, {"inputs", static_cast<int64_t>(i)}));
    rows.inputs.push_back(std::move(input));
    LOCKSTEP_RETURN_IF_ERROR(CheckRows(rows.inputs[i], rows.inputs[0]));
  }
  if (!with_targets) return rows;
  LOCKSTEP_ASSIGN_OR_RETURN(rows.targets, checkpoint::GetTensor(file, "targets"));
  LOCKSTEP_RETURN_IF_ERROR(CheckRows(rows.targets, rows.inputs[0]));
  return rows;
}

}  // namespace

Rows Rows::Part(int64_t first, int64_t count) const {
  const at::Tensor indices = at::arange(first, first + count).remainder(size());
  Rows part;
  for (const at::Tensor& input : inputs) part.inputs.push_back(input.index_select(0, indices));
  if (targets.defined()) part.targets = targets.index_select(0, indices);
  return part;
}

std::string Rows::ToString() const {
  const auto text = [](std::string* out, const at::Tensor& tensor) {
    absl::StrAppend(out, c10::toString(tensor.scalar_type()), " ", Shape(tensor));
  };
  std::string all = absl::StrCat("inputs ", absl::StrJoin(inputs, ", ", text));
  if (!targets.defined()) return all;
  absl::StrAppend(&all, " and targets ");
  text(&all, targets);
  return all;
}

absl::StatusOr<Rows> ReadRows(const std::string& path, bool with_targets) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(path, {.map_location = "cpu"}));
  absl::StatusOr<Rows> rows = RowsOf(file, with_targets);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(rows.status(), path));
  return rows;
}

}  // namespace lockstep::examples
