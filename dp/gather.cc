#include "lockstep/dp/gather.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "lockstep/dp/internal/copy.h"

namespace lockstep::dp {
namespace internal {
namespace {

enum class Kind { kUndefined, kScalar, kBatch };

Kind KindOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return Kind::kUndefined;
  return tensor.dim() == 0 ? Kind::kScalar : Kind::kBatch;
}

std::string Description(const at::Tensor& tensor) {
  return tensor.defined() ? c10::str("a tensor of shape ", tensor.sizes()) : "an undefined tensor";
}

bool FitTogether(const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  if (KindOf(a) != KindOf(b)) return false;
  if (KindOf(a) != Kind::kBatch) return true;
  if (a.dim() != b.dim()) return false;
  const int64_t along = dim < 0 ? dim + a.dim() : dim;
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (i != along && a.size(i) != b.size(i)) return false;
  }
  return true;
}

void CheckFit(const std::vector<at::Tensor>& parts, int64_t dim) {
  for (size_t replica = 1; replica < parts.size(); ++replica) {
    TORCH_CHECK_VALUE(FitTogether(parts[0], parts[replica], dim), "Gather: expected outputs that differ in dimension ",
                      dim, " only, found ", Description(parts[0]), " of replica 0 and ", Description(parts[replica]),
                      " of replica ", replica);
  }
}

at::Tensor GatherScalars(const std::vector<at::Tensor>& parts, int64_t dim) {
  TORCH_CHECK_VALUE(dim == 0 || dim == -1, "Gather: expected outputs with a dimension ", dim, ", found scalars");
  TORCH_WARN_ONCE(
      "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and return a "
      "vector.");
  return at::stack(parts);
}

std::vector<c10::IValue> Elements(const c10::IValue& value) {
  if (value.isTuple()) return value.toTupleRef().elements().vec();
  const c10::ArrayRef<c10::IValue> elements = value.toListRef();
  return elements.vec();
}

std::vector<c10::IValue> GatherElements(const std::vector<c10::IValue>& parts, const GatherTarget& target) {
  std::vector<std::vector<c10::IValue>> elements;
  for (const c10::IValue& part : parts) elements.push_back(Elements(part));
  return GatherParts(elements, target);
}

c10::IValue GatherDicts(const std::vector<c10::IValue>& parts, const GatherTarget& target) {
  std::vector<c10::impl::GenericDict> dicts;
  for (const c10::IValue& part : parts) dicts.push_back(part.toGenericDict());
  CheckSameSize("dict entries", dicts);
  c10::impl::GenericDict out(dicts[0].keyType(), dicts[0].valueType());
  for (const auto& entry : dicts[0]) {
    std::vector<c10::IValue> values;
    for (const auto& dict : dicts) {
      if (!dict.contains(entry.key())) ThrowMissingKey(values.size());
      values.push_back(dict.at(entry.key()));
    }
    out.insert(entry.key(), GatherIValues(values, target));
  }
  return out;
}

}  // namespace

at::Tensor GatherTensors(const std::vector<at::Tensor>& parts, const GatherTarget& target) {
  CheckFit(parts, target.dim);
  if (KindOf(parts[0]) == Kind::kUndefined) return {};
  std::vector<at::Tensor> there;
  for (const at::Tensor& part : parts) there.push_back(CopyTo(part, target.device));
  return KindOf(parts[0]) == Kind::kScalar ? GatherScalars(there, target.dim) : at::cat(there, target.dim);
}

c10::IValue GatherIValues(const std::vector<c10::IValue>& parts, const GatherTarget& target) {
  for (size_t replica = 1; replica < parts.size(); ++replica) {
    TORCH_CHECK_VALUE(parts[replica].tagKind() == parts[0].tagKind(), "Gather: expected outputs of one type, found ",
                      parts[0].tagKind(), " of replica 0 and ", parts[replica].tagKind(), " of replica ", replica);
  }
  const c10::IValue& first = parts[0];
  if (first.isTensor()) return GatherEach(parts, target, [](const auto& part) { return part.toTensor(); });
  if (first.isTensorList()) {
    return GatherEach(parts, target, [](const auto& part) { return part.toTensorVector(); });
  }
  if (first.isTuple()) return c10::ivalue::Tuple::create(GatherElements(parts, target));
  if (first.isGenericDict()) return GatherDicts(parts, target);
  if (!first.isList()) return first;
  c10::impl::GenericList list(first.toList().elementType());
  for (c10::IValue& element : GatherElements(parts, target)) list.push_back(std::move(element));
  return list;
}

void CheckSizes(const char* what, const std::vector<size_t>& sizes) {
  for (size_t replica = 1; replica < sizes.size(); ++replica) {
    TORCH_CHECK_VALUE(sizes[replica] == sizes[0], "Gather: expected as many ", what, " of every replica, found ",
                      sizes[0], " of replica 0 and ", sizes[replica], " of replica ", replica);
  }
}

void ThrowMissingKey(size_t replica) {
  TORCH_CHECK_VALUE(false, "Gather: expected maps with the same keys, found one of replica 0 that replica ", replica,
                    " lacks");
}

}  // namespace internal
}  // namespace lockstep::dp
