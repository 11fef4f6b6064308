#include "lockstep/checkpoint/archive/decoder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/archive/bounds.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/archive/objects.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::archive {
namespace {

using pickle::PickleKind;
using pickle::PickleNode;
using pickle::PickleTensor;

static_assert(sizeof(PickleNode) <= 16 && sizeof(Value) <= 24, "builder.cc charges memory for these sizes");

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

absl::Status CheckFlags(const PickleTensor& tensor, at::ScalarType type) {
  const bool complex = c10::isComplexType(type);
  if (tensor.conjugate && !complex) return Malformed("a conjugated tensor that is not complex");
  if (tensor.requires_grad && !complex && !c10::isFloatingType(type))
    return Malformed("a tensor without gradient requires one");
  return absl::OkStatus();
}

class Decoder {
 public:
  Decoder(const pickle::PickleGraph& graph, std::shared_ptr<const zip::ZipReader> zip, const DecodeOptions& options)
      : graph_(graph),
        root_path_(options.root_path),
        saved_devices_(options.saved_devices),
        deferred_(options.deferred != nullptr),
        storages_(std::move(zip), options.archive, options.map_location, options.verify, options.deferred),
        strings_(graph.strings.size()),
        sequences_(graph.sequences.size()),
        dicts_(graph.dicts.size()),
        objects_(graph.objects.size()),
        tensors_(graph.tensors.size()) {}

  absl::StatusOr<Value> Run() {
    LOCKSTEP_ASSIGN_OR_RETURN(Value value, Make(graph_.root));
    if (!deferred_) LOCKSTEP_RETURN_IF_ERROR(storages_.ReadAll());
    is_read_ = true;
    if (needs_contents_ && deferred_)
      return absl::UnimplementedError("a sparse or quantized tensor cannot be deferred");
    if (needs_contents_) {
      LOCKSTEP_ASSIGN_OR_RETURN(value, MakeAgain());
    }
    if (saved_devices_) *saved_devices_ = storages_.saved_devices();
    return value;
  }

 private:
  // kOpen: being made. A container that needs itself is an error.
  enum class State : uint8_t { kNew, kOpen, kDone };
  struct Slot {
    State state = State::kNew;
    Value value;
    size_t height = 0;  // how far below it containers and tensors nest
  };

  absl::StatusOr<Value> Make(PickleNode node);
  absl::StatusOr<Value> MakeAt(const Value& step, PickleNode node);
  Value MakeString(PickleNode node);
  template <typename MakeIt>
  absl::StatusOr<Value> Once(Slot& slot, MakeIt make);
  absl::StatusOr<Value> MakeSequence(PickleNode node);
  absl::StatusOr<Value> MakeDict(const pickle::PickleDict& dict);
  absl::StatusOr<Value> MakeObject(const pickle::PickleObject& object);
  absl::StatusOr<std::vector<Value>> MakeItems(PickleNode node);
  absl::StatusOr<Value> MakeSparseTensor(const std::vector<PickleNode>& arguments);
  absl::StatusOr<Value> MakeQuantizedTensor(const std::vector<PickleNode>& arguments);
  absl::StatusOr<Value> MakeAgain();
  absl::StatusOr<Value> MakeTensor(const PickleTensor& tensor);
  absl::StatusOr<at::Tensor> Build(const PickleTensor& tensor);
  std::string Here() const { return absl::StrCat(root_path_, KeyPath(path_).ToString()); }
  std::string TensorHere() const;
  absl::Status Where(const absl::Status& status) const;

  const pickle::PickleGraph& graph_;
  const std::string root_path_;
  SavedDevices* const saved_devices_;
  const bool deferred_;
  StorageLoader storages_;
  std::vector<Value> path_;
  size_t deepest_ = 0;  // below the container that is being made, so far
  std::vector<Value> strings_;
  std::vector<Slot> sequences_;
  std::vector<Slot> dicts_;
  std::vector<Slot> objects_;
  std::vector<Slot> tensors_;
  // Sparse and quantized tensors are made once the tensors that they consist of have their contents. Before that None
  // stands for them.
  bool is_read_ = false;
  bool needs_contents_ = false;
};

std::string Decoder::TensorHere() const {
  const std::string here = Here();
  return here.empty() ? "tensor" : absl::StrCat(here, ": tensor");
}

absl::Status Decoder::Where(const absl::Status& status) const {
  const std::string here = Here();
  return here.empty() ? status : Annotate(status, here);
}

absl::Status TooDeep() { return Malformed(absl::StrCat("containers nested more than ", kMaxDepth, " deep")); }

absl::StatusOr<Value> Decoder::MakeAt(const Value& step, PickleNode node) {
  if (path_.size() >= kMaxDepth) return TooDeep();
  path_.push_back(step);
  LOCKSTEP_ASSIGN_OR_RETURN(Value value, Make(node));
  path_.pop_back();
  return value;
}

absl::StatusOr<Value> Decoder::Make(PickleNode node) {
  switch (node.kind) {
    case PickleKind::kNone:
      return Value();
    case PickleKind::kBool:
      return Value(node.boolean);
    case PickleKind::kInt:
      return Value(node.integer);
    case PickleKind::kDouble:
      return Value(node.real);
    case PickleKind::kString:
    case PickleKind::kBytes:
      return MakeString(node);
    case PickleKind::kList:
    case PickleKind::kTuple:
      return Once(sequences_[node.index], [&] { return MakeSequence(node); });
    case PickleKind::kDict:
      return Once(dicts_[node.index], [&] { return MakeDict(graph_.dicts[node.index]); });
    case PickleKind::kTensor:
      return Once(tensors_[node.index], [&] { return MakeTensor(graph_.tensors[node.index]); });
    case PickleKind::kObject:
      return Once(objects_[node.index], [&] { return MakeObject(graph_.objects[node.index]); });
    case PickleKind::kStorage:
      return Where(absl::UnimplementedError("a storage outside a tensor is not supported"));
    case PickleKind::kGlobal:
    case PickleKind::kRefused:
    case PickleKind::kUnset:
      break;
  }
  return Where(absl::UnimplementedError("a Python class as a value is not supported"));
}

Value Decoder::MakeString(PickleNode node) {
  Value& made = strings_[node.index];
  if (made.is_none()) {
    const absl::string_view text = graph_.strings[node.index];
    made = node.kind == PickleKind::kString ? Value(text) : Value::Bytes(text);
  }
  return made;
}

// Values already created may be deeply nested, if a list contains each of its items in the next. Destroying a Value
// that deep would overflow the stack.
template <typename MakeIt>
absl::StatusOr<Value> Decoder::Once(Slot& slot, MakeIt make) {
  if (slot.state == State::kOpen)
    return Where(absl::UnimplementedError("a container that contains itself is not supported"));
  if (slot.state == State::kNew) {
    slot.state = State::kOpen;
    const size_t deepest = std::exchange(deepest_, path_.size());
    LOCKSTEP_ASSIGN_OR_RETURN(slot.value, make());
    slot.height = deepest_ - path_.size();
    deepest_ = deepest;
    slot.state = State::kDone;
  }
  deepest_ = std::max(deepest_, path_.size() + slot.height);
  if (deepest_ > kMaxDepth) return TooDeep();
  return slot.value;
}

absl::StatusOr<Value> Decoder::MakeSequence(PickleNode node) {
  const std::vector<PickleNode>& nodes = graph_.sequences[node.index];
  std::vector<Value> items;
  items.reserve(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value item, MakeAt(i, nodes[i]));
    items.push_back(std::move(item));
  }
  return node.kind == PickleKind::kList ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

Value::DictKind KindOf(pickle::PickleDictKind kind) {
  if (kind == pickle::PickleDictKind::kOrderedDict) return Value::DictKind::kOrderedDict;
  return kind == pickle::PickleDictKind::kCounter ? Value::DictKind::kCounter : Value::DictKind::kDict;
}

// If several entries have the same NaN object as key, the last value is kept. A Value cannot tell NaN objects apart.
absl::flat_hash_map<uint32_t, PickleNode> LastOfEachNan(const pickle::PickleDict& dict) {
  absl::flat_hash_map<uint32_t, PickleNode> last;
  for (const auto& [key, value] : dict.entries) {
    if (key.nan != 0) last[key.nan] = value;
  }
  return last;
}

absl::StatusOr<Value> Decoder::MakeDict(const pickle::PickleDict& dict) {
  Value made = Value::Dict({}, KindOf(dict.kind));
  absl::flat_hash_map<uint32_t, PickleNode> nans = LastOfEachNan(dict);
  for (auto [key_node, value_node] : dict.entries) {
    if (key_node.nan != 0) {
      const auto last = nans.find(key_node.nan);
      if (last == nans.end()) continue;
      value_node = last->second;
      nans.erase(last);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Value key, Make(key_node));
    if (!key.is_scalar())
      return Where(absl::UnimplementedError("a dict key that is not a scalar is not supported; save str(key)"));
    LOCKSTEP_ASSIGN_OR_RETURN(Value value, MakeAt(key, value_node));
    made.Set(key, std::move(value));
  }
  if (dict.attributes.kind == PickleKind::kDict) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value attributes, MakeAt("attributes", dict.attributes));
    made.SetAttributes(std::move(attributes));
  }
  return made;
}

absl::StatusOr<std::vector<Value>> Decoder::MakeItems(PickleNode node) {
  if (node.kind != PickleKind::kTuple && node.kind != PickleKind::kList)
    return Where(Malformed("a tuple is expected here"));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value items, Make(node));
  return items.items();
}

// _rebuild_sparse_tensor(layout, parts).
absl::StatusOr<Value> Decoder::MakeSparseTensor(const std::vector<PickleNode>& arguments) {
  if (arguments.size() != 2 || arguments[0].kind != PickleKind::kString)
    return Where(Malformed("a sparse tensor with a wrong argument"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> parts, MakeItems(arguments[1]));
  if (!is_read_) return Value();
  absl::StatusOr<at::Tensor> made = MakeSparse(graph_.strings[arguments[0].index], parts);
  if (!made.ok()) return Where(made.status());
  return Value(*std::move(made));
}

// _rebuild_qtensor(storage, offset, size, stride, parameters, requires_grad, hooks).
absl::StatusOr<Value> Decoder::MakeQuantizedTensor(const std::vector<PickleNode>& arguments) {
  if (arguments.size() != 7 || arguments[0].kind != PickleKind::kStorage || arguments[1].kind != PickleKind::kInt)
    return Where(Malformed("a quantized tensor with a wrong argument"));
  const pickle::PickleStorage& wanted = graph_.storages[arguments[0].index];
  QuantizedView view;
  view.type = QuantizedType(wanted.type);
  if (view.type == at::ScalarType::Undefined)
    return Where(absl::UnimplementedError(absl::StrCat("a quantized tensor in ", wanted.type, " is not supported")));
  view.offset = arguments[1].integer;
  for (const auto& [node, numbers] : {std::pair(arguments[2], &view.sizes), std::pair(arguments[3], &view.strides)}) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> items, MakeItems(node));
    for (const Value& item : items) {
      if (!item.is_int()) return Where(Malformed("a quantized tensor with a shape that is not of ints"));
      numbers->push_back(item.int_value());
    }
  }
  const size_t element_size = c10::elementSize(view.type);
  LOCKSTEP_ASSIGN_OR_RETURN(view.storage, storages_.Get(wanted, element_size, TensorHere()));
  const absl::Status bounds = CheckBounds(view.offset, view.sizes, view.strides, view.storage.nbytes(), element_size);
  if (!bounds.ok()) return Where(bounds);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> parameters, MakeItems(arguments[4]));
  if (!is_read_) return Value();
  absl::StatusOr<at::Tensor> made = MakeQuantized(view, parameters);
  if (!made.ok()) return Where(made.status());
  return Value(*std::move(made));
}

absl::StatusOr<Value> Decoder::MakeObject(const pickle::PickleObject& object) {
  const std::vector<PickleNode>& arguments = graph_.sequences[object.arguments.index];
  needs_contents_ |= IsSparse(object) || IsQuantized(object);
  if (IsSparse(object)) return MakeSparseTensor(arguments);
  if (IsQuantized(object)) return MakeQuantizedTensor(arguments);
  absl::StatusOr<Value> made = MakeConstant(graph_, object);
  if (!made.ok()) return Where(made.status());
  return made;
}

// The storages are known and have their contents now.
absl::StatusOr<Value> Decoder::MakeAgain() {
  for (std::vector<Slot>* slots : {&sequences_, &dicts_, &objects_, &tensors_}) {
    for (Slot& slot : *slots) slot = Slot();
  }
  return Make(graph_.root);
}

absl::StatusOr<at::Tensor> Decoder::Build(const PickleTensor& tensor) {
  if (tensor.storage == PickleTensor::kNoStorage) return Malformed("a tensor without a storage");
  const pickle::PickleStorage& wanted = graph_.storages[tensor.storage];
  const tensors::Dtype* stored = tensors::FindDtypeOfStorage(wanted.type);
  const tensors::Dtype* dtype = tensor.dtype.empty() ? stored : tensors::FindDtypeNamed(tensor.dtype);
  if (!dtype) return absl::UnimplementedError(absl::StrCat("a tensor in ", wanted.type, " is not supported"));
  const size_t element_size = c10::elementSize(dtype->type);
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Storage storage,
                            storages_.Get(wanted, stored ? c10::elementSize(stored->type) : 1, TensorHere()));
  LOCKSTEP_RETURN_IF_ERROR(CheckBounds(tensor.offset, tensor.sizes, tensor.strides, storage.nbytes(), element_size));
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(tensor, dtype->type));
  return TorchStatusOr("", [&] {
    at::Tensor made = at::empty({0}, at::TensorOptions(storage.device()).dtype(dtype->type));
    made.set_(storage, tensor.offset, tensor.sizes, tensor.strides);
    if (tensor.conjugate) made.unsafeGetTensorImpl()->_set_conj(true);
    if (tensor.negative) made.unsafeGetTensorImpl()->_set_neg(true);
    made.set_requires_grad(tensor.requires_grad);
    return made;
  });
}

absl::StatusOr<Value> Decoder::MakeTensor(const PickleTensor& tensor) {
  absl::StatusOr<at::Tensor> made = Build(tensor);
  if (!made.ok()) return Annotate(made.status(), TensorHere());
  Value value = tensor.parameter ? Value::Parameter(*std::move(made)) : Value(*std::move(made));
  if (tensor.attributes.kind == PickleKind::kDict) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value attributes, MakeAt("attributes", tensor.attributes));
    value.SetAttributes(std::move(attributes));
  }
  return value;
}

}  // namespace

absl::StatusOr<Value> Decode(const pickle::PickleGraph& graph, std::shared_ptr<const zip::ZipReader> zip,
                             const DecodeOptions& options) {
  return Decoder(graph, std::move(zip), options).Run();
}

}  // namespace lockstep::checkpoint::archive
