// Get and similar functions: access to a nested Value, with errors that name the path.

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/text.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {
namespace {

// A scalar in Python's syntax, truncated if it is long.
std::string Shown(const Value& value) {
  if (value.is_int()) return absl::StrCat(value.int_value());
  if (value.is_double()) return absl::StrCat(value.double_value());
  if (value.is_bool()) return value.bool_value() ? "True" : "False";
  return value.is_string() ? file::Quoted(value.string_value()) : std::string(value.type_name());
}

std::string Found(const Value& value) {
  const std::string shown = Shown(value);
  return shown == value.type_name() ? shown : absl::StrCat(value.type_name(), " ", shown);
}

std::string Path(const std::vector<Value>& steps, size_t count) {
  std::string path;
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&path, "[", Shown(steps[i]), "]");
  return path;
}

std::string KeysOf(const Value& dict) {
  constexpr size_t kListed = 5;
  if (dict.size() == 0) return "the dict is empty";
  std::vector<std::string> keys;
  for (size_t i = 0; i < dict.size() && i < kListed; ++i) keys.push_back(Shown(dict.entries()[i].first));
  const std::string more = dict.size() > kListed ? absl::StrCat(" and ", dict.size() - kListed, " more") : "";
  return absl::StrCat("the dict has ", absl::StrJoin(keys, ", "), more);
}

absl::StatusOr<Value> Step(const Value& value, const std::vector<Value>& steps, size_t at) {
  const Value& step = steps[at];
  if (value.is_dict()) {
    if (const Value* found = value.Find(step)) return *found;
    return absl::NotFoundError(absl::StrCat(Path(steps, at + 1), ": no such key; ", KeysOf(value)));
  }
  if ((value.is_list() || value.is_tuple()) && step.is_int()) {
    const int64_t index = step.int_value();
    if (index >= 0 && index < static_cast<int64_t>(value.size())) return value.items()[index];
    return absl::NotFoundError(
        absl::StrCat(Path(steps, at + 1), ": no such index; the ", value.type_name(), " has ", value.size(), " items"));
  }
  const std::string where = at == 0 ? Path(steps, 1) : Path(steps, at);
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": expected ", at == 0 ? "to look into a dict" : "dict", ", found ", Found(value)));
}

absl::Status WrongType(const KeyPath& path, absl::string_view expected, const Value& found) {
  return absl::InvalidArgumentError(absl::StrCat(path.ToString(), ": expected ", expected, ", found ", Found(found)));
}

}  // namespace

std::string KeyPath::ToString() const { return Path(steps_, steps_.size()); }

absl::StatusOr<Value> Get(const Value& value, const KeyPath& path) {
  Value current = value;
  for (size_t at = 0; at < path.steps().size(); ++at) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value next, Step(current, path.steps(), at));
    current = std::move(next);
  }
  return current;
}

absl::StatusOr<bool> GetBool(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_bool()) return WrongType(path, "bool", found);
  return found.bool_value();
}

absl::StatusOr<int64_t> GetInt(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_int()) return WrongType(path, "int", found);
  return found.int_value();
}

absl::StatusOr<double> GetDouble(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (found.is_int()) return static_cast<double>(found.int_value());
  if (!found.is_double()) return WrongType(path, "float", found);
  return found.double_value();
}

absl::StatusOr<std::string> GetString(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_string()) return WrongType(path, "str", found);
  return found.string_value();
}

absl::StatusOr<at::Tensor> GetTensor(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_tensor()) return WrongType(path, "Tensor", found);
  return found.tensor();
}

absl::StatusOr<std::vector<Value>> GetItems(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_list() && !found.is_tuple()) return WrongType(path, "list or tuple", found);
  return found.items();
}

absl::StatusOr<Value> GetDict(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_dict()) return WrongType(path, "dict", found);
  return found;
}

}  // namespace lockstep::checkpoint
