#include "lockstep/checkpoint/value.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "absl/container/flat_hash_map.h"

namespace lockstep::checkpoint {
namespace {

// The identity of a key. Text refers to the key's own bytes, which its copies share.
using KeyId = std::tuple<int, int64_t, absl::string_view>;

int64_t BitsOf(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

constexpr int kNumber = 1;

KeyId IdOfDouble(double value) {
  // 2^63 is the first double past int64_t.
  const bool fits = value >= -9223372036854775808.0 && value < 9223372036854775808.0 && value == std::trunc(value);
  if (fits) return {kNumber, static_cast<int64_t>(value), {}};
  return {2, BitsOf(value), {}};
}

KeyId IdOf(const Value& key) {
  switch (key.type()) {
    case Value::Type::kNone:
      return {0, 0, {}};
    case Value::Type::kBool:
      return {kNumber, key.bool_value(), {}};
    case Value::Type::kInt:
      return {kNumber, key.int_value(), {}};
    case Value::Type::kDouble:
      return IdOfDouble(key.double_value());
    case Value::Type::kString:
      return {3, 0, key.string_value()};
    case Value::Type::kBytes:
      return {4, 0, key.bytes_value()};
    default:
      std::fprintf(stderr, "lockstep::checkpoint::Value: a dict's key must be a scalar\n");
      std::abort();
  }
}

}  // namespace

struct Value::Sequence {
  std::vector<Value> items;
};

struct Value::DictTable {
  DictKind kind = DictKind::kDict;
  std::vector<Entry> entries;
  Value attributes;
  absl::flat_hash_map<KeyId, size_t> index;

  void Set(const Value& key, Value value) {
    if (key.is_double() && std::isnan(key.double_value())) {
      entries.emplace_back(key, std::move(value));
      return;
    }
    const auto found = index.find(IdOf(key));
    if (found != index.end()) {
      entries[found->second].second = std::move(value);
      return;
    }
    entries.emplace_back(key, std::move(value));
    index.emplace(IdOf(entries.back().first), entries.size() - 1);
  }
};

Value::Value(absl::string_view text) : data_(StringData{std::make_shared<const Text>(Text{std::string(text)})}) {}

Value Value::Bytes(absl::string_view bytes) {
  Value value;
  value.data_ = BytesData{std::make_shared<const Text>(Text{std::string(bytes)})};
  return value;
}

Value Value::Parameter(at::Tensor tensor) {
  Value value;
  auto traits = c10::make_intrusive<TensorTraits>();
  traits->parameter = true;
  value.data_ = TensorData{std::move(tensor), std::move(traits)};
  return value;
}

Value Value::List(std::vector<Value> items) {
  Value value;
  value.data_ = ListData{std::make_shared<Sequence>(Sequence{std::move(items)})};
  return value;
}

Value Value::Tuple(std::vector<Value> items) {
  Value value;
  value.data_ = TupleData{std::make_shared<Sequence>(Sequence{std::move(items)})};
  return value;
}

Value Value::Dict(const std::vector<Entry>& entries, DictKind kind) {
  const auto table = std::make_shared<DictTable>();
  table->kind = kind;
  table->entries.reserve(entries.size());
  table->index.reserve(entries.size());
  for (const Entry& entry : entries) table->Set(entry.first, entry.second);
  Value value;
  value.data_ = DictData{table};
  return value;
}

absl::string_view Value::type_name() const {
  static constexpr absl::string_view kNames[] = {"None",  "bool",   "int",  "float", "str",
                                                 "bytes", "Tensor", "list", "tuple", "dict"};
  if (is_parameter()) return "Parameter";
  if (is_dict() && dict_kind() == DictKind::kOrderedDict) return "OrderedDict";
  if (is_dict() && dict_kind() == DictKind::kCounter) return "Counter";
  return kNames[data_.index()];
}

const std::vector<Value>& Value::items() const& {
  return is_list() ? std::get<ListData>(data_)->items : std::get<TupleData>(data_)->items;
}

const std::vector<Value::Entry>& Value::entries() const& { return std::get<DictData>(data_)->entries; }

Value::DictKind Value::dict_kind() const { return std::get<DictData>(data_)->kind; }

const Value& Value::attributes() const {
  static const Value* const none = new Value;
  if (is_dict()) return std::get<DictData>(data_)->attributes;
  const TensorData& data = std::get<TensorData>(data_);
  return data.traits && data.traits->attributes ? *data.traits->attributes : *none;
}

size_t Value::size() const {
  if (is_dict()) return entries().size();
  return is_list() || is_tuple() ? items().size() : 0;
}

const Value* Value::Find(const Value& key) const {
  if (!is_dict() || !key.is_scalar()) return nullptr;
  const DictTable& table = *std::get<DictData>(data_);
  const auto found = table.index.find(IdOf(key));
  return found == table.index.end() ? nullptr : &table.entries[found->second].second;
}

void Value::Append(Value item) {
  ListData& list = std::get<ListData>(data_);
  if (list.use_count() > 1) list = ListData{std::make_shared<Sequence>(*list)};
  list->items.push_back(std::move(item));
}

Value::DictTable& Value::MutableDict() {
  DictData& dict = std::get<DictData>(data_);
  // The copied index stays valid: keys' copies share the text that it refers to.
  if (dict.use_count() > 1) dict = DictData{std::make_shared<DictTable>(*dict)};
  return *dict;
}

void Value::Set(const Value& key, Value value) { MutableDict().Set(key, std::move(value)); }

void Value::SetAttributes(Value attributes) {
  if (is_dict()) {
    MutableDict().attributes = std::move(attributes);
    return;
  }
  // The traits that copies share stay as they are.
  TensorData& data = std::get<TensorData>(data_);
  auto traits = c10::make_intrusive<TensorTraits>();
  traits->parameter = IsParameter(data);
  traits->attributes = std::make_shared<const Value>(std::move(attributes));
  data.traits = std::move(traits);
}

const void* Value::identity() const {
  if (is_tensor()) return tensor().unsafeGetTensorImpl();
  if (is_list()) return std::get<ListData>(data_).get();
  if (is_tuple()) return std::get<TupleData>(data_).get();
  return is_dict() ? std::get<DictData>(data_).get() : nullptr;
}

}  // namespace lockstep::checkpoint
