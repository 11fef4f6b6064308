#include "lockstep/checkpoint/sharded/state_dict.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"

namespace lockstep::checkpoint {
namespace {

// A list is cut where an element is a tensor, a dict or a list that is cut.
bool IsCut(const Value& value, int depth = 0) {
  if (value.is_dict()) return true;
  if (!value.is_list() || depth > archive::kMaxDepth) return false;
  return std::any_of(value.items().begin(), value.items().end(),
                     [&](const Value& item) { return item.is_tensor() || IsCut(item, depth + 1); });
}

// str(key).
absl::StatusOr<Value> Name(const Value& key) {
  if (key.is_string()) return key;
  if (key.is_int()) return Value(absl::StrCat(key.int_value()));
  if (key.is_bool()) return Value(key.bool_value() ? "True" : "False");
  if (key.is_none()) return Value("None");
  return absl::InvalidArgumentError(absl::StrCat("a key of type ", key.type_name(), " has no name"));
}

class Flattener {
 public:
  absl::Status Add(const Value& value);
  ShardedStateDict Finish() && { return std::move(entries_); }

 private:
  absl::Status AddAt(Value step, const Value& value);

  std::vector<Value> path_;
  ShardedStateDict entries_;
};

absl::Status Flattener::AddAt(Value step, const Value& value) {
  if (path_.size() >= archive::kMaxDepth)
    return absl::InvalidArgumentError(absl::StrCat("containers nested more than ", archive::kMaxDepth, " deep"));
  path_.push_back(std::move(step));
  LOCKSTEP_RETURN_IF_ERROR(Add(value));
  path_.pop_back();
  return absl::OkStatus();
}

absl::Status Flattener::Add(const Value& value) {
  if (!IsCut(value)) {
    entries_.push_back({KeyPath(path_), value});
    return absl::OkStatus();
  }
  if (value.is_list()) {
    for (size_t i = 0; i < value.size(); ++i) LOCKSTEP_RETURN_IF_ERROR(AddAt(i, value.items()[i]));
    return absl::OkStatus();
  }
  for (const auto& [key, element] : value.entries()) {
    absl::StatusOr<Value> name = Name(key);
    if (!name.ok()) return path_.empty() ? name.status() : Annotate(name.status(), KeyPath(path_).ToString());
    LOCKSTEP_RETURN_IF_ERROR(AddAt(*std::move(name), element));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShardedEntry::name() const { return internal::JoinPath(path.steps()); }

absl::StatusOr<ShardedStateDict> FlattenStateDict(const Value& nested) {
  if (!nested.is_dict())
    return absl::InvalidArgumentError(absl::StrCat("a state dict must be a dict, found ", nested.type_name()));
  Flattener flattener;
  LOCKSTEP_RETURN_IF_ERROR(flattener.Add(nested));
  return std::move(flattener).Finish();
}

const Value* FindValue(const ShardedStateDict& state, absl::string_view name) {
  for (const ShardedEntry& entry : state) {
    if (entry.name() == name) return std::get_if<Value>(&entry.value);
  }
  return nullptr;
}

}  // namespace lockstep::checkpoint
