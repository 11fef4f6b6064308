#include "lockstep/checkpoint/internal/leaves.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/internal/dtype.h"

namespace lockstep::checkpoint::internal {
namespace {

constexpr size_t kMaxLeaves = 1'000'000;

// As an error names it, without the brackets.
std::string Text(const Value& scalar) {
  const std::string path = KeyPath(std::vector<Value>{scalar}).ToString();
  return path.substr(1, path.size() - 2);
}

std::string Joined(const std::string& parent, const Value& step) {
  const std::string name = step.is_string() ? absl::Utf8SafeCEscape(step.string_value()) : Text(step);
  return parent.empty() ? name : absl::StrCat(parent, ".", name);
}

absl::Status Collect(const std::string& name, const Value& value, std::vector<Leaf>& leaves) {
  if (value.size() == 0) {
    if (leaves.size() == kMaxLeaves) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxLeaves, " values"));
    }
    leaves.push_back({name, value});
  } else if (value.is_dict()) {
    for (const auto& [key, item] : value.entries()) LOCKSTEP_RETURN_IF_ERROR(Collect(Joined(name, key), item, leaves));
  } else {
    for (size_t i = 0; i < value.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(Collect(Joined(name, i), value.items()[i], leaves));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Leaf>> Leaves(const Value& value) {
  std::vector<Leaf> leaves;
  LOCKSTEP_RETURN_IF_ERROR(Collect("", value, leaves));
  absl::flat_hash_map<std::string, int> seen;
  for (Leaf& leaf : leaves) {
    const int count = ++seen[leaf.name];
    if (count > 1) absl::StrAppend(&leaf.name, " (", count, ")");
  }
  return leaves;
}

std::string DtypeName(const at::Tensor& tensor) {
  const auto dtype = DtypeOf(tensor);
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

}  // namespace lockstep::checkpoint::internal
