#include "lockstep/checkpoint/sharded/internal/unflatten.h"

#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::internal {
namespace {

// A node of the nested state dict. It is new until it becomes a value, a list or a dict.
struct Place {
  enum class Kind { kNew, kValue, kList, kDict };
  Kind kind = Kind::kNew;
  Value value;
  std::vector<Place*> items;
  std::vector<std::pair<Value, Place*>> entries;
  absl::flat_hash_map<std::string, Place*> by_key;
};

class Unflattener {
 public:
  explicit Unflattener(size_t most_holes) : holes_left_(most_holes) {}

  absl::Status Add(const PathAndValue& entry);
  Value Finish() { return ToValue(root_); }

 private:
  absl::StatusOr<Place*> Step(Place& from, const Value& step);
  absl::StatusOr<Place*> At(Place& list, size_t index);
  Place& In(Place& dict, const Value& key);
  Place* New() { return &places_.emplace_back(); }
  Value ToValue(const Place& place) const;

  size_t holes_left_;
  Place root_;
  std::deque<Place> places_;
};

absl::StatusOr<Place*> Unflattener::At(Place& list, size_t index) {
  if (index >= list.items.size()) {
    const size_t holes = index - list.items.size();
    if (holes > holes_left_) return absl::ResourceExhaustedError("a list with too many elements missing");
    holes_left_ -= holes;
    list.items.resize(index + 1, nullptr);
  }
  if (!list.items[index]) list.items[index] = New();
  return list.items[index];
}

Place& Unflattener::In(Place& dict, const Value& key) {
  const auto [found, added] = dict.by_key.try_emplace(key.string_value(), nullptr);
  if (added) {
    found->second = New();
    dict.entries.emplace_back(key, found->second);
  }
  return *found->second;
}

absl::StatusOr<Place*> Unflattener::Step(Place& from, const Value& step) {
  const Place::Kind kind = step.is_int() ? Place::Kind::kList : Place::Kind::kDict;
  if (from.kind == Place::Kind::kNew) from.kind = kind;
  if (from.kind != kind) return absl::DataLossError("its path contradicts another item's path");
  if (step.is_int()) return At(from, step.int_value());
  return &In(from, step);
}

absl::Status Unflattener::Add(const PathAndValue& entry) {
  Place* place = &root_;
  for (const Value& step : entry.path) {
    LOCKSTEP_ASSIGN_OR_RETURN(place, Step(*place, step));
  }
  if (place->kind != Place::Kind::kNew) return absl::DataLossError("its path contradicts another item's path");
  place->kind = Place::Kind::kValue;
  place->value = entry.value;
  return absl::OkStatus();
}

Value Unflattener::ToValue(const Place& place) const {
  if (place.kind == Place::Kind::kValue) return place.value;
  if (place.kind == Place::Kind::kList) {
    std::vector<Value> items;
    for (const Place* item : place.items) items.push_back(item ? ToValue(*item) : Value());
    return Value::List(std::move(items));
  }
  std::vector<Value::Entry> entries;
  for (const auto& [key, element] : place.entries) entries.emplace_back(key, ToValue(*element));
  return Value::Dict(entries);
}

}  // namespace

absl::StatusOr<Value> Unflatten(const std::vector<PathAndValue>& entries, size_t most_holes) {
  Unflattener unflattener(most_holes);
  for (const PathAndValue& entry : entries) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(unflattener.Add(entry), absl::StrCat("item ", KeyPath(entry.path).ToString())));
  }
  return unflattener.Finish();
}

}  // namespace lockstep::checkpoint::internal
