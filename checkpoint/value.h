// The contents of a checkpoint: Python's plain data and tensors, as one C++ type.
//
//   Value checkpoint = Value::Dict({{"epoch", 3}, {"best", 0.93}, {"state_dict", StateDict(*model)}});
//   absl::StatusOr<int64_t> epoch = GetInt(checkpoint, "epoch");
//   absl::StatusOr<double> lr = GetDouble(checkpoint, {"optimizer", "param_groups", 0, "lr"});
//   if (const Value* best = checkpoint.Find("best")) Report(best->double_value());
//
// A Value is cheap to copy: copies share strings, containers and the memory of tensors. Set and Append change this
// Value only: a container that copies share is first copied, one level deep. So a Value never contains itself. Two
// elements that share a container or a tensor are one object in Python too, also after Save and Load. Several threads
// may read a Value at a time; a write must not overlap with other accesses.

#ifndef LOCKSTEP_CHECKPOINT_VALUE_H_
#define LOCKSTEP_CHECKPOINT_VALUE_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::checkpoint {

class Value {
 public:
  enum class Type { kNone, kBool, kInt, kDouble, kString, kBytes, kTensor, kList, kTuple, kDict };
  // dict, collections.OrderedDict, collections.Counter. All keep their entries' order.
  enum class DictKind { kDict, kOrderedDict, kCounter };
  using Entry = std::pair<Value, Value>;

  // None.
  Value() = default;
  // bool, int64_t, double. An unsigned number past INT64_MAX wraps.
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Value(T value) : data_(Number(value)) {}
  // str; UTF-8.
  Value(const char* text) : Value(absl::string_view(text)) {}
  Value(absl::string_view text);
  Value(const std::string& text) : Value(absl::string_view(text)) {}
  // Shares the tensor's memory.
  Value(at::Tensor tensor) : data_(TensorData{std::move(tensor), {}}) {}

  static Value Bytes(absl::string_view bytes);
  // A torch.nn.Parameter.
  static Value Parameter(at::Tensor tensor);
  static Value List(std::vector<Value> items = {});
  static Value Tuple(std::vector<Value> items = {});
  // If a key occurs twice, it keeps its first position and its last value, as in Python. A NaN equals no key, so each
  // is an entry, as each NaN object is in Python. Requires: keys are scalars.
  static Value Dict(const std::vector<Entry>& entries = {}, DictKind kind = DictKind::kDict);
  static Value OrderedDict(const std::vector<Entry>& entries = {}) { return Dict(entries, DictKind::kOrderedDict); }

  Type type() const { return static_cast<Type>(data_.index()); }
  bool is_none() const { return type() == Type::kNone; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_int() const { return type() == Type::kInt; }
  bool is_double() const { return type() == Type::kDouble; }
  bool is_string() const { return type() == Type::kString; }
  bool is_bytes() const { return type() == Type::kBytes; }
  bool is_tensor() const { return type() == Type::kTensor; }
  bool is_list() const { return type() == Type::kList; }
  bool is_tuple() const { return type() == Type::kTuple; }
  bool is_dict() const { return type() == Type::kDict; }
  bool is_parameter() const { return is_tensor() && IsParameter(std::get<TensorData>(data_)); }
  // Returns whether it can be the key of a dict: None, bool, int, float, str or bytes.
  bool is_scalar() const { return type() < Type::kTensor; }
  // Python's name of the type, such as "int", "str", "Tensor" or "OrderedDict".
  absl::string_view type_name() const;

  // Each requires its type. For a Value of unknown type, use GetInt and similar functions below.
  bool bool_value() const { return std::get<bool>(data_); }
  int64_t int_value() const { return std::get<int64_t>(data_); }
  double double_value() const { return std::get<double>(data_); }
  const std::string& string_value() const { return std::get<StringData>(data_)->text; }
  const std::string& bytes_value() const { return std::get<BytesData>(data_)->text; }
  const at::Tensor& tensor() const { return std::get<TensorData>(data_).tensor; }
  // Requires: is_list() or is_tuple(). On a temporary it returns a copy, so that `for (const Value& item :
  // F().items())` is safe. The same applies to entries().
  const std::vector<Value>& items() const&;
  std::vector<Value> items() && { return static_cast<const Value&>(*this).items(); }
  // The following functions require is_dict().
  const std::vector<Entry>& entries() const&;
  std::vector<Entry> entries() && { return static_cast<const Value&>(*this).entries(); }
  DictKind dict_kind() const;
  // The attributes of an OrderedDict (such as a state dict's _metadata) or of a tensor (such as a torch.nn.Buffer): a
  // dict, or None. Requires: is_dict() or is_tensor().
  const Value& attributes() const;

  // The number of elements of a list, tuple or dict; 0 for other types.
  size_t size() const;
  // The value at `key`, or nullptr if this is not a dict or does not have the key. As in Python, 1, 1.0 and true are
  // the same key. A NaN is never found. Takes constant time. The pointer is valid until this Value changes.
  const Value* Find(const Value& key) const;

  // Requires: is_list().
  void Append(Value item);
  // Requires: is_dict() and key.is_scalar().
  void Set(const Value& key, Value value);
  // Requires: is_tensor() or dict_kind() == kOrderedDict; `attributes` is None or a dict.
  void SetAttributes(Value attributes);

  // Identifies the list, tuple, dict or tensor that copies share; nullptr for a scalar.
  const void* identity() const;

 private:
  struct Text {
    std::string text;
  };
  struct Sequence;
  struct DictTable;
  // Distinct types, in the order of Type.
  struct StringData : std::shared_ptr<const Text> {};
  struct BytesData : std::shared_ptr<const Text> {};
  struct TensorTraits : c10::intrusive_ptr_target {
    bool parameter = false;
    std::shared_ptr<const Value> attributes;
  };
  // Few tensors have traits, and storing them here would make every Value larger.
  struct TensorData {
    at::Tensor tensor;
    c10::intrusive_ptr<TensorTraits> traits;
  };
  static bool IsParameter(const TensorData& data) { return data.traits && data.traits->parameter; }
  struct ListData : std::shared_ptr<Sequence> {};
  struct TupleData : std::shared_ptr<Sequence> {};
  struct DictData : std::shared_ptr<DictTable> {};
  using Data = std::variant<std::monostate, bool, int64_t, double, StringData, BytesData, TensorData, ListData,
                            TupleData, DictData>;

  template <typename T>
  static Data Number(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<int64_t>(value);
    } else {
      return static_cast<double>(value);
    }
  }

  DictTable& MutableDict();

  Data data_;
};

// Returns whether two values are bit-identical in Python's terms: types, keys and their order, attributes, bits of
// numbers (so NaN equals NaN), and tensors' dtype, device, shape, flags and elements. Ignores strides and sharing. A
// sparse or quantized tensor is identical to itself only. Throws LibTorch's exception if a device fails.
bool Identical(const Value& a, const Value& b);

// A key, or the path to a nested value: GetInt(value, "epoch"), GetDouble(value, {"optimizer", "param_groups", 0,
// "lr"}). An int is an index into a list or tuple.
class KeyPath {
 public:
  KeyPath(const char* key) : steps_{key} {}
  KeyPath(absl::string_view key) : steps_{key} {}
  KeyPath(const std::string& key) : steps_{key} {}
  KeyPath(std::initializer_list<Value> steps) : steps_(steps) {}
  explicit KeyPath(std::vector<Value> steps) : steps_(std::move(steps)) {}

  const std::vector<Value>& steps() const { return steps_; }
  // In Python's notation: ["optimizer"]["param_groups"][0].
  std::string ToString() const;

 private:
  std::vector<Value> steps_;
};

// Returns the value at `path`. NotFound, with the existing keys: a key is missing. InvalidArgument, with the path and
// the expected and found types: a step goes into a value that is not a container, or the value has another type.
absl::StatusOr<Value> Get(const Value& value, const KeyPath& path);
absl::StatusOr<bool> GetBool(const Value& value, const KeyPath& path);
absl::StatusOr<int64_t> GetInt(const Value& value, const KeyPath& path);
// Also accepts an int, since Python code often passes ints for float parameters.
absl::StatusOr<double> GetDouble(const Value& value, const KeyPath& path);
absl::StatusOr<std::string> GetString(const Value& value, const KeyPath& path);
absl::StatusOr<at::Tensor> GetTensor(const Value& value, const KeyPath& path);
// Accepts a list or a tuple.
absl::StatusOr<std::vector<Value>> GetItems(const Value& value, const KeyPath& path);
absl::StatusOr<Value> GetDict(const Value& value, const KeyPath& path);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_VALUE_H_
