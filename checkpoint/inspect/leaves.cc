#include "lockstep/checkpoint/inspect/leaves.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::inspect {
namespace {

// Limits of the expansion of a file: a container that occurs many times is stored once, and so is a long key above
// many values.
constexpr size_t kMaxSharedLeaves = 1'000'000;
constexpr size_t kMaxNameBytes = size_t{256} << 20;

// The key as errors write it, without the brackets.
std::string Text(const Value& scalar) {
  const std::string path = KeyPath(std::vector<Value>{scalar}).ToString();
  return path.substr(1, path.size() - 2);
}

std::string Joined(const std::string& parent, const Value& step) {
  const std::string name = step.is_string() ? absl::Utf8SafeCEscape(step.string_value()) : Text(step);
  return parent.empty() ? name : absl::StrCat(parent, ".", name);
}

// A sparse or quantized tensor by its parts, which are plain; None for another value.
Value PartsOf(const Value& value) {
  if (!value.is_tensor()) return Value();
  const at::Tensor& tensor = value.tensor();
  const at::Layout layout = tensor.layout();
  const std::string sizes = absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]");
  if (layout == at::kSparse) {
    return Value::Dict({{"sparse_coo", sizes}, {"indices", tensor._indices()}, {"values", tensor._values()}});
  }
  if (layout == at::kSparseCsr || layout == at::kSparseBsr) {
    return Value::Dict({{layout == at::kSparseCsr ? "sparse_csr" : "sparse_bsr", sizes},
                        {"crow_indices", tensor.crow_indices()},
                        {"col_indices", tensor.col_indices()},
                        {"values", tensor.values()}});
  }
  if (layout == at::kSparseCsc || layout == at::kSparseBsc) {
    return Value::Dict({{layout == at::kSparseCsc ? "sparse_csc" : "sparse_bsc", sizes},
                        {"ccol_indices", tensor.ccol_indices()},
                        {"row_indices", tensor.row_indices()},
                        {"values", tensor.values()}});
  }
  if (!tensor.is_quantized()) return Value();
  Value parts = Value::Dict({{"quantized", c10::toString(tensor.scalar_type())}, {"int_repr", tensor.int_repr()}});
  const bool per_tensor = tensor.qscheme() == at::kPerTensorAffine;
  parts.Set("scale", per_tensor ? Value(tensor.q_scale()) : Value(tensor.q_per_channel_scales()));
  parts.Set("zero_point", per_tensor ? Value(tensor.q_zero_point()) : Value(tensor.q_per_channel_zero_points()));
  return parts;
}

class Collector {
 public:
  absl::Status Add(const std::string& name, const Value& value, bool shared = false);
  std::vector<Leaf> Finish() && { return std::move(leaves_); }

 private:
  absl::Status AddLeaf(const std::string& name, const Value& value, bool shared);

  std::vector<Leaf> leaves_;
  absl::flat_hash_set<const void*> containers_;
  size_t shared_ = 0;
  size_t name_bytes_ = 0;
};

absl::Status Collector::AddLeaf(const std::string& name, const Value& value, bool shared) {
  shared_ += shared;
  if (shared_ > kMaxSharedLeaves) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxSharedLeaves, " values in containers that stand in several places"));
  }
  name_bytes_ += name.size();
  if (name_bytes_ > kMaxNameBytes)
    return absl::ResourceExhaustedError("the names of its values take more than 256 MiB");
  leaves_.push_back({name, value});
  return absl::OkStatus();
}

// `shared`: whether `value` is in a container that occurred before.
absl::Status Collector::Add(const std::string& name, const Value& value, bool shared) {
  if (const Value parts = PartsOf(value); parts.is_dict()) {
    for (const auto& [key, part] : parts.entries()) LOCKSTEP_RETURN_IF_ERROR(AddLeaf(Joined(name, key), part, shared));
    return absl::OkStatus();
  }
  if (value.size() == 0) return AddLeaf(name, value, shared);
  shared |= !containers_.insert(value.identity()).second;
  if (value.is_dict()) {
    for (const auto& [key, item] : value.entries()) LOCKSTEP_RETURN_IF_ERROR(Add(Joined(name, key), item, shared));
    return absl::OkStatus();
  }
  for (size_t i = 0; i < value.size(); ++i) LOCKSTEP_RETURN_IF_ERROR(Add(Joined(name, i), value.items()[i], shared));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Leaf>> Leaves(const Value& value) {
  Collector collector;
  LOCKSTEP_RETURN_IF_ERROR(collector.Add("", value));
  std::vector<Leaf> leaves = std::move(collector).Finish();
  absl::flat_hash_map<std::string, int> seen;
  for (Leaf& leaf : leaves) {
    const int count = ++seen[leaf.name];
    if (count > 1) absl::StrAppend(&leaf.name, " (", count, ")");
  }
  return leaves;
}

std::string DtypeName(const at::Tensor& tensor) {
  const auto dtype = tensors::DtypeOf(tensor);
  return dtype.ok() ? std::string((*dtype)->name) : c10::toString(tensor.scalar_type());
}

std::string Short(const Value& value) {
  if (value.is_tensor()) {
    return absl::StrCat(DtypeName(value.tensor()), " [", absl::StrJoin(value.tensor().sizes(), ", "), "]");
  }
  if (!value.is_scalar()) return absl::StrCat(value.type_name(), " of ", value.size());
  if (value.is_bytes()) return absl::StrCat("bytes, ", value.bytes_value().size());
  return value.is_none() ? "None" : absl::StrCat(value.type_name(), " ", Text(value));
}

}  // namespace lockstep::checkpoint::inspect
