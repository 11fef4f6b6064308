#include "lockstep/checkpoint/archive/encoder.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/archive/bounds.h"
#include "lockstep/checkpoint/file/text.h"
#include "lockstep/checkpoint/pickle/writer.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::archive {
namespace {

using tensors::Dtype;

// Python's pickler writes containers in pieces of this many, which bounds the reader's stack.
constexpr size_t kBatch = 1000;

absl::string_view RebuildFunction(const Dtype& dtype) {
  return dtype.storage.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2";
}

class Encoder {
 public:
  absl::StatusOr<EncodedValue> Run(const Value& value) {
    LOCKSTEP_RETURN_IF_ERROR(Write(value));
    encoded_.pickle = std::move(pickle_).Finish();
    return std::move(encoded_);
  }

 private:
  absl::Status Write(const Value& value);
  absl::Status WriteAt(const Value& step, const Value& value);
  absl::Status WriteString(const std::string& text);
  absl::Status WriteShared(const Value& value);
  absl::Status WriteNew(const Value& value);
  absl::Status WriteItems(const Value& list);
  absl::Status WriteTuple(const Value& tuple);
  absl::Status WriteDict(const Value& dict);
  absl::Status WriteEntries(const Value& dict);
  absl::Status WriteAttributes(const Value& attributes);
  absl::Status WriteTensorOrParameter(const Value& value);
  absl::Status WriteFromType(const Value& value, const Dtype& dtype);
  absl::Status WriteTensor(const at::Tensor& tensor, const Dtype& dtype, bool requires_grad);
  absl::Status WriteTensorArguments(const at::Tensor& tensor, const Dtype& dtype, bool requires_grad);
  absl::Status WriteStorage(const at::Tensor& tensor, const Dtype& dtype);
  absl::StatusOr<size_t> NumberOf(const c10::Storage& storage, const Dtype& dtype);
  void WriteInts(c10::IntArrayRef ints);
  void WriteMetadata(const at::Tensor& tensor);
  void WriteEmptyOrderedDict();
  absl::Status Error(absl::StatusCode code, absl::string_view what) const;
  absl::Status TooDeep();

  // Identity; for a tensor also whether it is a Parameter, and the identity of its attributes.
  using WrittenId = std::tuple<const void*, bool, const void*>;
  struct Written {
    uint32_t memo;
    size_t height;  // how far below it containers and tensors nest
  };
  struct Known {
    size_t number;
    const Dtype* dtype;
  };

  pickle::PickleWriter pickle_;
  EncodedValue encoded_;
  std::vector<Value> path_;
  size_t deepest_ = 0;  // below the container that is being written, so far
  // Values that the pickle's memo contains.
  absl::flat_hash_map<WrittenId, Written> written_;
  absl::flat_hash_map<const c10::StorageImpl*, Known> storages_;
};

absl::Status Encoder::Error(absl::StatusCode code, absl::string_view what) const {
  if (path_.empty()) return absl::Status(code, what);
  return absl::Status(code, absl::StrCat(KeyPath(path_).ToString(), ": ", what));
}

absl::Status Encoder::TooDeep() {
  path_.resize(std::min<size_t>(path_.size(), 3));
  return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("containers nested more than ", kMaxDepth, " deep"));
}

absl::Status Encoder::WriteAt(const Value& step, const Value& value) {
  if (path_.size() >= kMaxDepth) return TooDeep();
  path_.push_back(step);
  LOCKSTEP_RETURN_IF_ERROR(Write(value));
  path_.pop_back();
  return absl::OkStatus();
}

absl::Status Encoder::Write(const Value& value) {
  switch (value.type()) {
    case Value::Type::kNone:
      pickle_.None();
      return absl::OkStatus();
    case Value::Type::kBool:
      pickle_.Bool(value.bool_value());
      return absl::OkStatus();
    case Value::Type::kInt:
      pickle_.Int(value.int_value());
      return absl::OkStatus();
    case Value::Type::kDouble:
      pickle_.Double(value.double_value());
      return absl::OkStatus();
    case Value::Type::kString:
      return WriteString(value.string_value());
    case Value::Type::kBytes:
      pickle_.Bytes(value.bytes_value());
      return absl::OkStatus();
    default:
      return WriteShared(value);
  }
}

absl::Status Encoder::WriteString(const std::string& text) {
  if (!file::IsPythonText(text))
    return Error(absl::StatusCode::kInvalidArgument, "a string that is not UTF-8; use Value::Bytes");
  if (text.size() > 0xffffffff) return Error(absl::StatusCode::kInvalidArgument, "a string of more than 4 GiB");
  pickle_.String(text);
  return absl::OkStatus();
}

absl::Status Encoder::WriteShared(const Value& value) {
  const void* const attributes = value.is_tensor() ? value.attributes().identity() : nullptr;
  const WrittenId id(value.identity(), value.is_parameter(), attributes);
  auto known = written_.find(id);
  if (known != written_.end()) {
    pickle_.Get(known->second.memo);
  } else {
    // Values do not contain themselves, so each can be remembered once it is complete.
    const size_t deepest = std::exchange(deepest_, path_.size());
    LOCKSTEP_RETURN_IF_ERROR(WriteNew(value));
    known = written_.emplace(id, Written{pickle_.Memoize(), deepest_ - path_.size()}).first;
    deepest_ = deepest;
  }
  deepest_ = std::max(deepest_, path_.size() + known->second.height);
  return deepest_ > kMaxDepth ? TooDeep() : absl::OkStatus();
}

absl::Status Encoder::WriteNew(const Value& value) {
  if (value.is_tensor()) return WriteTensorOrParameter(value);
  if (value.is_dict()) return WriteDict(value);
  return value.is_list() ? WriteItems(value) : WriteTuple(value);
}

absl::Status Encoder::WriteItems(const Value& list) {
  pickle_.EmptyList();
  for (size_t i = 0; i < list.size(); ++i) {
    if (i % kBatch == 0) pickle_.Mark();
    LOCKSTEP_RETURN_IF_ERROR(WriteAt(i, list.items()[i]));
    if (i % kBatch == kBatch - 1 || i + 1 == list.size()) pickle_.Appends();
  }
  return absl::OkStatus();
}

absl::Status Encoder::WriteTuple(const Value& tuple) {
  if (tuple.size() == 0) {
    pickle_.EmptyTuple();
    return absl::OkStatus();
  }
  pickle_.Mark();
  for (size_t i = 0; i < tuple.size(); ++i) LOCKSTEP_RETURN_IF_ERROR(WriteAt(i, tuple.items()[i]));
  pickle_.Tuple();
  return absl::OkStatus();
}

absl::Status Encoder::WriteDict(const Value& dict) {
  if (dict.dict_kind() == Value::DictKind::kCounter) {
    pickle_.Global("collections", "Counter");
    pickle_.EmptyDict();
    LOCKSTEP_RETURN_IF_ERROR(WriteEntries(dict));
    pickle_.Tuple1();
    pickle_.Reduce();
    return absl::OkStatus();
  }
  if (dict.dict_kind() == Value::DictKind::kOrderedDict) {
    WriteEmptyOrderedDict();
  } else {
    pickle_.EmptyDict();
  }
  LOCKSTEP_RETURN_IF_ERROR(WriteEntries(dict));
  return WriteAttributes(dict.attributes());
}

absl::Status Encoder::WriteEntries(const Value& dict) {
  for (size_t i = 0; i < dict.size(); ++i) {
    if (i % kBatch == 0) pickle_.Mark();
    const auto& [key, value] = dict.entries()[i];
    LOCKSTEP_RETURN_IF_ERROR(Write(key));
    LOCKSTEP_RETURN_IF_ERROR(WriteAt(key, value));
    if (i % kBatch == kBatch - 1 || i + 1 == dict.size()) pickle_.SetItems();
  }
  return absl::OkStatus();
}

absl::Status Encoder::WriteAttributes(const Value& attributes) {
  if (!attributes.is_dict()) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(WriteAt("attributes", attributes));
  pickle_.Build();
  return absl::OkStatus();
}

// A Parameter is a call around its plain tensor.
absl::Status Encoder::WriteTensorOrParameter(const Value& value) {
  const absl::StatusOr<const Dtype*> dtype = tensors::DtypeOf(value.tensor());
  if (!dtype.ok()) return Error(dtype.status().code(), dtype.status().message());
  const bool attributes = !value.attributes().is_none();
  if (!value.is_parameter() && attributes) return WriteFromType(value, **dtype);
  if (!value.is_parameter()) return WriteTensor(value.tensor(), **dtype, value.tensor().requires_grad());
  pickle_.Global("torch._utils", attributes ? "_rebuild_parameter_with_state" : "_rebuild_parameter");
  if (attributes) pickle_.Mark();
  LOCKSTEP_RETURN_IF_ERROR(WriteTensor(value.tensor(), **dtype, false));
  pickle_.Bool(value.tensor().requires_grad());
  WriteEmptyOrderedDict();
  if (attributes) {
    LOCKSTEP_RETURN_IF_ERROR(WriteAt("attributes", value.attributes()));
    pickle_.Tuple();
  } else {
    pickle_.Tuple3();
  }
  pickle_.Reduce();
  return absl::OkStatus();
}

// _rebuild_from_type_v2(function, type, arguments, state), as Python writes a tensor with attributes.
absl::Status Encoder::WriteFromType(const Value& value, const Dtype& dtype) {
  pickle_.Global("torch._tensor", "_rebuild_from_type_v2");
  pickle_.Mark();
  pickle_.Global("torch._utils", RebuildFunction(dtype));
  pickle_.Global("torch", "Tensor");
  LOCKSTEP_RETURN_IF_ERROR(WriteTensorArguments(value.tensor(), dtype, value.tensor().requires_grad()));
  LOCKSTEP_RETURN_IF_ERROR(WriteAt("attributes", value.attributes()));
  pickle_.Tuple();
  pickle_.Reduce();
  return absl::OkStatus();
}

absl::Status Encoder::WriteTensor(const at::Tensor& tensor, const Dtype& dtype, bool requires_grad) {
  pickle_.Global("torch._utils", RebuildFunction(dtype));
  LOCKSTEP_RETURN_IF_ERROR(WriteTensorArguments(tensor, dtype, requires_grad));
  pickle_.Reduce();
  return absl::OkStatus();
}

absl::Status Encoder::WriteTensorArguments(const at::Tensor& tensor, const Dtype& dtype, bool requires_grad) {
  const absl::Status bounds = CheckBounds(tensor.storage_offset(), tensor.sizes(), tensor.strides(),
                                          tensor.storage().nbytes(), tensor.element_size());
  if (!bounds.ok()) return Error(absl::StatusCode::kInvalidArgument, bounds.message());
  pickle_.Mark();
  LOCKSTEP_RETURN_IF_ERROR(WriteStorage(tensor, dtype));
  pickle_.Int(tensor.storage_offset());
  WriteInts(tensor.sizes());
  WriteInts(tensor.strides());
  pickle_.Bool(requires_grad);
  WriteEmptyOrderedDict();  // hooks
  if (dtype.storage.empty()) pickle_.Global("torch", dtype.name);
  WriteMetadata(tensor);
  pickle_.Tuple();
  return absl::OkStatus();
}

absl::Status Encoder::WriteStorage(const at::Tensor& tensor, const Dtype& dtype) {
  const c10::Storage& storage = tensor.storage();
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t number, NumberOf(storage, dtype));
  const bool untyped = dtype.storage.empty();
  pickle_.Mark();
  pickle_.String("storage");
  pickle_.Global(untyped ? "torch.storage" : "torch", untyped ? "UntypedStorage" : dtype.storage);
  pickle_.String(absl::StrCat(number));
  pickle_.String(storage.device().str());
  pickle_.Int(storage.nbytes() / (untyped ? 1 : tensor.element_size()));
  pickle_.Tuple();
  pickle_.PersistentId();
  return absl::OkStatus();
}

// torch.load gives a storage the dtype of the first tensor that names it, so a second dtype would come back as the
// first.
absl::StatusOr<size_t> Encoder::NumberOf(const c10::Storage& storage, const Dtype& dtype) {
  const auto [entry, added] =
      storages_.try_emplace(storage.unsafeGetStorageImpl(), Known{encoded_.storages.size(), &dtype});
  const Known& known = entry->second;
  if (added) encoded_.storages.push_back(storage);
  if (known.dtype == &dtype || (known.dtype->storage.empty() && dtype.storage.empty())) return known.number;
  return Error(absl::StatusCode::kInvalidArgument,
               absl::StrCat("a view as torch.", dtype.name, " of memory that another tensor here views as torch.",
                            known.dtype->name, ", which the format cannot express; clone() one of them"));
}

void Encoder::WriteInts(c10::IntArrayRef ints) {
  if (ints.empty()) return pickle_.EmptyTuple();
  if (ints.size() > 3) pickle_.Mark();
  for (const int64_t value : ints) pickle_.Int(value);
  if (ints.size() == 1) return pickle_.Tuple1();
  if (ints.size() == 2) return pickle_.Tuple2();
  return ints.size() == 3 ? pickle_.Tuple3() : pickle_.Tuple();
}

// Complex conjugation and negation are flags on a view of the memory.
void Encoder::WriteMetadata(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return;
  pickle_.EmptyDict();
  pickle_.Mark();
  if (tensor.is_conj()) {
    pickle_.String("conj");
    pickle_.Bool(true);
  }
  if (tensor.is_neg()) {
    pickle_.String("neg");
    pickle_.Bool(true);
  }
  pickle_.SetItems();
}

void Encoder::WriteEmptyOrderedDict() {
  pickle_.Global("collections", "OrderedDict");
  pickle_.EmptyTuple();
  pickle_.Reduce();
}

}  // namespace

absl::StatusOr<EncodedValue> Encode(const Value& value) {
  absl::StatusOr<EncodedValue> encoded;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { encoded = Encoder().Run(value); }));
  return encoded;
}

}  // namespace lockstep::checkpoint::archive
