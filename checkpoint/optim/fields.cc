#include "lockstep/checkpoint/optim/fields.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::optim {

absl::StatusOr<double> GetNumber(const Value& value, const KeyPath& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value found, Get(value, path));
  if (!found.is_tensor() || found.tensor().numel() != 1) return GetDouble(value, path);
  return TorchStatusOr(path.ToString(), [&] { return found.tensor().item<double>(); });
}

absl::Status TwoNumbers(const Value& found, double& first, double& second) {
  if (found.is_dict() || found.size() != 2)
    return absl::InvalidArgumentError(absl::StrCat("expected two numbers, found ", found.type_name()));
  LOCKSTEP_ASSIGN_OR_RETURN(first, GetNumber(found, {0}));
  LOCKSTEP_ASSIGN_OR_RETURN(second, GetNumber(found, {1}));
  return absl::OkStatus();
}

absl::Status InvalidIfMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::InvalidArgumentError(status.message()) : status;
}

template <typename T>
void Fields::Exchange(const char* key, T& field, absl::StatusOr<T> (*get)(const Value&, const KeyPath&)) {
  if (!reading()) return dict_.Set(key, field);
  if (!status_.ok()) return;
  const absl::StatusOr<T> found = get(*from_, key);
  status_ = InvalidIfMissing(found.status());
  if (found.ok()) field = *found;
}

template <typename T>
void Fields::ExchangeList(const char* key, std::vector<T>& field,
                          absl::StatusOr<T> (*get)(const Value&, const KeyPath&)) {
  const auto read = [&](const Value& list) -> absl::Status {
    if (!list.is_list() && !list.is_tuple())
      return absl::InvalidArgumentError(absl::StrCat("expected list, found ", list.type_name()));
    field.clear();
    for (size_t i = 0; i < list.size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const T item, get(list, {i}));
      field.push_back(item);
    }
    return absl::OkStatus();
  };
  Field(key, Value::List(std::vector<Value>(field.begin(), field.end())), read);
}

void Fields::Double(const char* key, double& field) { Exchange(key, field, GetNumber); }
void Fields::Int(const char* key, int64_t& field) { Exchange(key, field, GetInt); }
void Fields::Bool(const char* key, bool& field) { Exchange(key, field, GetBool); }
void Fields::Doubles(const char* key, std::vector<double>& field) { ExchangeList(key, field, GetNumber); }
void Fields::Ints(const char* key, std::vector<int64_t>& field) { ExchangeList(key, field, GetInt); }

void Fields::Field(const char* key, Value written, absl::FunctionRef<absl::Status(const Value&)> read) {
  if (!reading()) return dict_.Set(key, std::move(written));
  if (!status_.ok()) return;
  const absl::StatusOr<Value> found = Get(*from_, key);
  status_ = found.ok() ? Annotate(read(*found), KeyPath(key).ToString()) : InvalidIfMissing(found.status());
}

void Fields::WriteOnly(const char* key, Value written) {
  if (!reading()) dict_.Set(key, std::move(written));
}

void Fields::AlwaysFalse(const char* key, absl::string_view owner) {
  if (!reading()) return dict_.Set(key, false);
  const Value* found = from_->Find(key);
  if (!status_.ok() || !found || !found->is_bool() || !found->bool_value()) return;
  status_ = absl::UnimplementedError(absl::StrCat(KeyPath(key).ToString(), ": True, which ", owner, " does not have"));
}

bool Fields::Has(const char* key) const {
  const Value* found = from_->Find(key);
  return found && !found->is_none();
}

void Fields::Check(bool holds, absl::string_view error) {
  if (reading() && status_.ok() && !holds) status_ = absl::InvalidArgumentError(error);
}

}  // namespace lockstep::checkpoint::optim
