#include "lockstep/checkpoint/pickle/builder.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::pickle {
namespace {

// The maximum cost of each entry: its node, a vector's growth, and the value later created from it. These are upper
// bounds from sizeof on x86-64, not measurements, so that the limit holds.
constexpr size_t kStringCost = 128;
constexpr size_t kContainerCost = 256;
constexpr size_t kItemCost = 64;
constexpr size_t kEntryCost = 224;
constexpr size_t kObjectCost = 192;
constexpr size_t kTensorCost = 1024;
constexpr size_t kDimensionCost = 64;
constexpr size_t kStorageCost = 384;
constexpr size_t kGlobalCost = 64;

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

PickleNode Indexed(PickleKind kind, size_t size) {
  PickleNode node;
  node.kind = kind;
  node.index = static_cast<uint32_t>(size - 1);
  return node;
}

absl::StatusOr<bool> Bool(PickleNode node) {
  if (node.kind != PickleKind::kBool) return Malformed("a bool is expected here");
  return node.boolean;
}

absl::StatusOr<int64_t> Int(PickleNode node) {
  if (node.kind != PickleKind::kInt) return Malformed("an int is expected here");
  return node.integer;
}

absl::StatusOr<std::string> FromLatin1Text(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    if (code < 0x80) {
      bytes.push_back(text[i]);
    } else if ((code == 0xc2 || code == 0xc3) && i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80) {
      bytes.push_back(static_cast<char>((code & 3) << 6 | (text[++i] & 0x3f)));
    } else {
      return Malformed("bytes with a character that is not in Latin-1");
    }
  }
  return bytes;
}

absl::StatusOr<PickleGlobal> FindGlobal(const PickleClasses& classes, absl::string_view module,
                                        absl::string_view name) {
  const bool given = std::any_of(classes.begin(), classes.end(), [&](const PickleClass& known) {
    return known.module == module && known.name == name;
  });
  return given ? PickleGlobal::kClass : FindPickleGlobal(module, name);
}

// Maps a little-endian two's complement to decimal digits. Digits are divided off in groups of nine.
std::string DecimalOf(absl::string_view bytes) {
  constexpr uint64_t kGroup = 1000000000;
  const bool negative = (bytes.back() & 0x80) != 0;
  std::vector<uint8_t> number(bytes.rbegin(), bytes.rend());  // big-endian
  if (negative) {
    for (uint8_t& byte : number) byte = ~byte;
    for (auto byte = number.rbegin(); byte != number.rend() && ++*byte == 0;) ++byte;
  }
  std::vector<uint32_t> groups;
  while (std::any_of(number.begin(), number.end(), [](uint8_t byte) { return byte != 0; })) {
    uint64_t rest = 0;
    for (uint8_t& byte : number) {
      rest = rest << 8 | byte;
      byte = static_cast<uint8_t>(rest / kGroup);
      rest %= kGroup;
    }
    groups.push_back(static_cast<uint32_t>(rest));
  }
  std::string digits = absl::StrCat(negative ? "-" : "", groups.empty() ? 0 : groups.back());
  for (size_t i = groups.size(); i-- > 1;) absl::StrAppendFormat(&digits, "%09u", groups[i - 1]);
  return digits;
}

}  // namespace

absl::Status PickleBuilder::Charge(size_t bytes) {
  if (bytes > left_) return absl::ResourceExhaustedError("it needs more memory than LoadOptions::memory_limit allows");
  left_ -= bytes;
  return absl::OkStatus();
}

absl::StatusOr<PickleNode> PickleBuilder::String(absl::string_view text, PickleKind kind) {
  LOCKSTEP_RETURN_IF_ERROR(Charge(kStringCost + text.size()));
  graph_.strings.push_back(text);
  return Indexed(kind, graph_.strings.size());
}

absl::StatusOr<PickleNode> PickleBuilder::OwnedString(std::string text, PickleKind kind) {
  LOCKSTEP_RETURN_IF_ERROR(Charge(text.capacity()));
  graph_.owned.push_back(std::move(text));
  return String(graph_.owned.back(), kind);
}

absl::StatusOr<PickleNode> PickleBuilder::Digits(absl::string_view bytes) {
  constexpr size_t kMostBytes = 1024;
  if (bytes.size() > kMostBytes) {
    return absl::UnimplementedError(
        absl::StrCat("an int of more than ", 8 * kMostBytes, " bits is not supported; save str(x)"));
  }
  LOCKSTEP_RETURN_IF_ERROR(Charge(8 * bytes.size()));
  return OwnedString(DecimalOf(bytes));
}

absl::StatusOr<PickleNode> PickleBuilder::Sequence(PickleKind kind, std::vector<PickleNode> items) {
  LOCKSTEP_RETURN_IF_ERROR(Charge(kContainerCost + items.size() * kItemCost));
  graph_.sequences.push_back(std::move(items));
  return Indexed(kind, graph_.sequences.size());
}

absl::StatusOr<PickleNode> PickleBuilder::Dict(PickleDictKind kind) {
  LOCKSTEP_RETURN_IF_ERROR(Charge(kContainerCost));
  graph_.dicts.emplace_back();
  graph_.dicts.back().kind = kind;
  return Indexed(PickleKind::kDict, graph_.dicts.size());
}

absl::StatusOr<PickleNode> PickleBuilder::Global(absl::string_view module, absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleGlobal global, FindGlobal(classes_, module, name));
  if (global == PickleGlobal::kName) return OwnedString(absl::StrCat("torch.", name));
  LOCKSTEP_RETURN_IF_ERROR(Charge(kGlobalCost));
  globals_.push_back({global, module, name});
  return Indexed(PickleKind::kGlobal, globals_.size());
}

absl::Status PickleBuilder::Append(PickleNode list, PickleNode item) {
  if (list.kind == PickleKind::kRefused) return absl::OkStatus();
  if (list.kind != PickleKind::kList) return Malformed("an item for an object that is not a list");
  LOCKSTEP_RETURN_IF_ERROR(Charge(kItemCost));
  graph_.sequences[list.index].push_back(item);
  return absl::OkStatus();
}

absl::Status PickleBuilder::SetItem(PickleNode dict, PickleNode key, PickleNode value) {
  if (dict.kind == PickleKind::kRefused) return absl::OkStatus();
  if (dict.kind != PickleKind::kDict) return Malformed("an entry for an object that is not a dict");
  if (key.kind > PickleKind::kBytes && key.kind != PickleKind::kObject && key.kind != PickleKind::kRefused)
    return absl::UnimplementedError("a dict key that is not a scalar is not supported; save str(key)");
  LOCKSTEP_RETURN_IF_ERROR(Charge(kEntryCost));
  graph_.dicts[dict.index].entries.emplace_back(key, value);
  return absl::OkStatus();
}

absl::Status PickleBuilder::SetState(PickleNode object, PickleNode state) {
  if (object.kind == PickleKind::kRefused) return absl::OkStatus();
  if (object.kind == PickleKind::kObject) {
    LOCKSTEP_RETURN_IF_ERROR(ChargeBytes(state));
    graph_.objects[object.index].state = state;
    return absl::OkStatus();
  }
  if (object.kind == PickleKind::kTensor && state.kind == PickleKind::kTuple) {
    return SetOldTensor(graph_.tensors[object.index], graph_.sequences[state.index]);
  }
  if (object.kind != PickleKind::kDict || graph_.dicts[object.index].kind != PickleDictKind::kOrderedDict ||
      state.kind != PickleKind::kDict) {
    return absl::InvalidArgumentError("attributes are allowed on an OrderedDict only");
  }
  graph_.dicts[object.index].attributes = state;
  return absl::OkStatus();
}

bool PickleBuilder::IsGlobal(PickleNode node, PickleGlobal global) const {
  return node.kind == PickleKind::kGlobal && globals_[node.index].global == global;
}

absl::StatusOr<absl::string_view> PickleBuilder::Text(PickleNode node) const {
  if (node.kind != PickleKind::kString) return Malformed("a str is expected here");
  return graph_.strings[node.index];
}

absl::StatusOr<std::vector<int64_t>> PickleBuilder::Ints(PickleNode tuple) {
  if (tuple.kind != PickleKind::kTuple) return Malformed("a tuple of ints is expected here");
  // Charged although some are dropped: a small pickle could ask for one long tuple again and again.
  LOCKSTEP_RETURN_IF_ERROR(Charge(graph_.sequences[tuple.index].size() * sizeof(int64_t)));
  std::vector<int64_t> ints;
  for (const PickleNode item : graph_.sequences[tuple.index]) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t value, Int(item));
    ints.push_back(value);
  }
  return ints;
}

absl::StatusOr<PickleNode> PickleBuilder::AddTensor(PickleTensor tensor) {
  LOCKSTEP_RETURN_IF_ERROR(Charge(kTensorCost + tensor.sizes.size() * kDimensionCost));
  graph_.tensors.push_back(std::move(tensor));
  return Indexed(PickleKind::kTensor, graph_.tensors.size());
}

absl::Status PickleBuilder::ReadMetadata(PickleNode metadata, PickleTensor& tensor) const {
  if (metadata.kind == PickleKind::kNone) return absl::OkStatus();
  if (metadata.kind != PickleKind::kDict) return Malformed("a tensor's metadata is not a dict");
  for (const auto& [key, value] : graph_.dicts[metadata.index].entries) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view name, Text(key));
    LOCKSTEP_ASSIGN_OR_RETURN(const bool set, Bool(value));
    if (name != "conj" && name != "neg") {
      return absl::UnimplementedError(
          absl::StrCat("a tensor with the metadata \"", name.substr(0, 40), "\" is not supported"));
    }
    (name == "conj" ? tensor.conjugate : tensor.negative) = set;
  }
  return absl::OkStatus();
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]); v3 has the dtype before the
// metadata.
absl::StatusOr<PickleNode> PickleBuilder::Tensor(const Arguments& arguments, bool names_dtype) {
  const size_t required = names_dtype ? 7 : 6;
  if (arguments.size() != required && arguments.size() != required + 1)
    return Malformed("a tensor with a wrong argument count");
  if (arguments[0].kind != PickleKind::kStorage) return Malformed("a tensor without a storage");
  PickleTensor tensor;
  tensor.storage = arguments[0].index;
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.offset, Int(arguments[1]));
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.sizes, Ints(arguments[2]));
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.strides, Ints(arguments[3]));
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.requires_grad, Bool(arguments[4]));
  if (names_dtype) {
    LOCKSTEP_ASSIGN_OR_RETURN(tensor.dtype, Text(arguments[6]));
    if (tensor.dtype.substr(0, 6) != "torch.") return Malformed("a dtype is expected here");
    tensor.dtype.remove_prefix(6);
  }
  if (arguments.size() > required) LOCKSTEP_RETURN_IF_ERROR(ReadMetadata(arguments[required], tensor));
  return AddTensor(std::move(tensor));
}

// _rebuild_tensor(storage, offset, size, stride), and the state of a tensor before PyTorch 0.4.
absl::StatusOr<PickleNode> PickleBuilder::OldTensor(const Arguments& arguments) {
  PickleTensor tensor;
  LOCKSTEP_RETURN_IF_ERROR(SetOldTensor(tensor, arguments));
  return AddTensor(std::move(tensor));
}

// The state of an old tensor is (storage, offset, size, stride); that of a Parameter is (data, gradient, hooks,
// requires_grad, volatile), or (requires_grad, volatile, hooks) if the data was its argument.
absl::Status PickleBuilder::SetOldTensor(PickleTensor& tensor, const Arguments& state) {
  if (tensor.parameter && state.size() == 5 && state[0].kind == PickleKind::kTensor) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool requires_grad, Bool(state[3]));
    tensor = graph_.tensors[state[0].index];
    tensor.parameter = true;
    tensor.requires_grad = requires_grad;
    return absl::OkStatus();
  }
  if (tensor.parameter && state.size() == 3) {
    LOCKSTEP_ASSIGN_OR_RETURN(tensor.requires_grad, Bool(state[0]));
    return absl::OkStatus();
  }
  if (state.size() != 4 || state[0].kind != PickleKind::kStorage) return Malformed("a tensor without a storage");
  tensor.storage = state[0].index;
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.offset, Int(state[1]));
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.sizes, Ints(state[2]));
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.strides, Ints(state[3]));
  return Charge(tensor.sizes.size() * kDimensionCost);
}

// _rebuild_parameter(data, requires_grad, hooks), and with_state(data, requires_grad, hooks, state).
absl::StatusOr<PickleNode> PickleBuilder::Parameter(const Arguments& arguments, bool has_state) {
  if (!arguments.empty() && arguments[0].kind == PickleKind::kObject)
    return absl::UnimplementedError("a Parameter that is sparse or quantized is not supported");
  if (arguments.size() != (has_state ? 4 : 3) || arguments[0].kind != PickleKind::kTensor)
    return Malformed("a Parameter without its tensor");
  PickleTensor tensor = graph_.tensors[arguments[0].index];
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.requires_grad, Bool(arguments[1]));
  tensor.parameter = true;
  if (has_state) LOCKSTEP_RETURN_IF_ERROR(ReadState(arguments[3], tensor));
  return AddTensor(std::move(tensor));
}

// _rebuild_from_type_v2(function, type, arguments, state): the type of function(*arguments), with attributes.
absl::StatusOr<PickleNode> PickleBuilder::FromType(const Arguments& arguments) {
  if (arguments.size() != 4 || arguments[2].kind != PickleKind::kTuple ||
      IsGlobal(arguments[0], PickleGlobal::kRebuildFromType))
    return Malformed("a tensor with attributes with a wrong argument");
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode plain, Call(arguments[0], arguments[2]));
  if (plain.kind == PickleKind::kRefused) return plain;
  if (plain.kind == PickleKind::kObject)
    return absl::UnimplementedError("a tensor with attributes that is sparse or quantized is not supported");
  if (plain.kind != PickleKind::kTensor) return Malformed("a tensor with attributes without its tensor");
  const bool parameter = graph_.tensors[plain.index].parameter;
  if (!IsGlobal(arguments[1], parameter ? PickleGlobal::kParameterType : PickleGlobal::kTensorType))
    return Malformed("a tensor with attributes of another type");
  // A copy: the plain one is not part of the value, but may be named again.
  PickleTensor tensor = graph_.tensors[plain.index];
  LOCKSTEP_RETURN_IF_ERROR(ReadState(arguments[3], tensor));
  return AddTensor(std::move(tensor));
}

// A dict of attributes. Python writes a tuple if the class has __slots__, which a Tensor lacks.
absl::Status PickleBuilder::ReadState(PickleNode state, PickleTensor& tensor) const {
  if (state.kind == PickleKind::kTuple) return absl::UnimplementedError("a tensor with __slots__ is not supported");
  if (state.kind != PickleKind::kDict) return Malformed("a tensor's attributes are not a dict");
  tensor.attributes = state;
  return absl::OkStatus();
}

absl::StatusOr<PickleNode> PickleBuilder::Counter(const Arguments& arguments) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode counter, Dict(PickleDictKind::kCounter));
  if (arguments.empty()) return counter;
  if (arguments.size() != 1 || arguments[0].kind != PickleKind::kDict)
    return Malformed("a Counter of an object that is not a dict");
  const auto& entries = graph_.dicts[arguments[0].index].entries;
  LOCKSTEP_RETURN_IF_ERROR(Charge(entries.size() * kEntryCost));
  graph_.dicts[counter.index].entries = entries;
  return counter;
}

absl::StatusOr<PickleNode> PickleBuilder::Encode(const Arguments& arguments) {
  if (arguments.size() != 2) return Malformed("bytes with a wrong argument count");
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view text, Text(arguments[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view encoding, Text(arguments[1]));
  if (encoding != "latin1" && encoding != "latin-1")
    return absl::UnimplementedError("bytes in an encoding other than latin1 are not supported");
  LOCKSTEP_RETURN_IF_ERROR(Charge(text.size()));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string bytes, FromLatin1Text(text));
  return OwnedString(std::move(bytes), PickleKind::kBytes);
}

// bytearray(), bytearray(bytes), or bytearray(text, "latin-1").
absl::StatusOr<PickleNode> PickleBuilder::ByteArray(const Arguments& arguments) {
  if (arguments.empty()) return String("", PickleKind::kBytes);
  if (arguments.size() == 1 && arguments[0].kind == PickleKind::kBytes) return arguments[0];
  return Encode(arguments);
}

// set(), or set(list of items).
absl::StatusOr<PickleNode> PickleBuilder::Set(const Arguments& arguments) {
  if (arguments.empty()) return Sequence(PickleKind::kList, {});
  if (arguments.size() != 1 || (arguments[0].kind != PickleKind::kList && arguments[0].kind != PickleKind::kTuple))
    return Malformed("a set of an object that is not a list");
  return Sequence(PickleKind::kList, graph_.sequences[arguments[0].index]);
}

// torch.device("cpu") or torch.device("cuda", 0).
absl::StatusOr<PickleNode> PickleBuilder::Device(const Arguments& arguments) {
  if (arguments.empty() || arguments.size() > 2) return Malformed("a device with a wrong argument count");
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view type, Text(arguments[0]));
  if (arguments.size() == 1) return String(type);
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t index, Int(arguments[1]));
  LOCKSTEP_RETURN_IF_ERROR(Charge(type.size()));
  return OwnedString(absl::StrCat(type, ":", index));
}

absl::StatusOr<PickleNode> PickleBuilder::Size(const Arguments& arguments) {
  if (arguments.size() != 1) return Malformed("a torch.Size with a wrong argument count");
  LOCKSTEP_RETURN_IF_ERROR(Ints(arguments[0]).status());
  return arguments[0];
}

// A refused callable, or the first refused argument, or kNone.
PickleNode PickleBuilder::RefusedIn(PickleNode callable, PickleNode arguments) const {
  if (callable.kind == PickleKind::kRefused) return callable;
  if (arguments.kind != PickleKind::kTuple) return PickleNode();
  const Arguments& given = graph_.sequences[arguments.index];
  const auto refused =
      std::find_if(given.begin(), given.end(), [](PickleNode node) { return node.kind == PickleKind::kRefused; });
  return refused == given.end() ? PickleNode() : *refused;
}

absl::StatusOr<PickleNode> PickleBuilder::Call(PickleNode callable, PickleNode arguments) {
  const PickleNode refused = RefusedIn(callable, arguments);
  if (refused.kind == PickleKind::kRefused) return refused;
  if (callable.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple)
    return Malformed("a call of an object that cannot be called");
  // A copy, since creating the result may move the tables.
  const Arguments given = graph_.sequences[arguments.index];
  switch (globals_[callable.index].global) {
    case PickleGlobal::kOrderedDict:
      if (!given.empty()) return absl::UnimplementedError("an OrderedDict made of arguments is not supported");
      return Dict(PickleDictKind::kOrderedDict);
    case PickleGlobal::kCounter:
      return Counter(given);
    case PickleGlobal::kRebuildTensor:
      return OldTensor(given);
    case PickleGlobal::kRebuildTensorV2:
      return Tensor(given, false);
    case PickleGlobal::kRebuildTensorV3:
      return Tensor(given, true);
    case PickleGlobal::kRebuildParameter:
      return Parameter(given, false);
    case PickleGlobal::kRebuildParameterWithState:
      return Parameter(given, true);
    case PickleGlobal::kRebuildFromType:
      return FromType(given);
    case PickleGlobal::kEncode:
      return Encode(given);
    case PickleGlobal::kBytes:
      if (!given.empty()) return absl::UnimplementedError("bytes made of arguments are not supported");
      return String("", PickleKind::kBytes);
    case PickleGlobal::kByteArray:
      return ByteArray(given);
    case PickleGlobal::kSet:
      return Set(given);
    case PickleGlobal::kLayout:
      if (given.size() != 1) return Malformed("a layout with a wrong argument count");
      LOCKSTEP_RETURN_IF_ERROR(Text(given[0]).status());
      return given[0];
    case PickleGlobal::kDevice:
      return Device(given);
    case PickleGlobal::kSize:
      return Size(given);
    case PickleGlobal::kClass:
      return Object(callable, arguments);
    case PickleGlobal::kOldTensorType:
    case PickleGlobal::kStorageType:
    case PickleGlobal::kName:
    case PickleGlobal::kTensorType:
    case PickleGlobal::kParameterType:
      break;
  }
  return Malformed("a call of an object that cannot be called");
}

absl::StatusOr<PickleNode> PickleBuilder::New(PickleNode type, PickleNode arguments) {
  const PickleNode refused = RefusedIn(type, arguments);
  if (refused.kind == PickleKind::kRefused) return refused;
  if (IsGlobal(type, PickleGlobal::kOldTensorType) || IsGlobal(type, PickleGlobal::kParameterType)) {
    return NewOldTensor(IsGlobal(type, PickleGlobal::kParameterType), arguments);
  }
  if (!IsGlobal(type, PickleGlobal::kClass) || arguments.kind != PickleKind::kTuple)
    return Malformed("an object whose class is not a class");
  return Object(type, arguments);
}

// A tensor that gets its storage from its state; or a Parameter(data, requires_grad), which may do so too.
absl::StatusOr<PickleNode> PickleBuilder::NewOldTensor(bool parameter, PickleNode arguments) {
  if (arguments.kind != PickleKind::kTuple) return Malformed("a tensor with a wrong argument");
  const Arguments given = graph_.sequences[arguments.index];
  PickleTensor tensor;
  if (parameter && !given.empty()) {
    if (given[0].kind != PickleKind::kTensor || given.size() > 2) return Malformed("a Parameter without its tensor");
    tensor = graph_.tensors[given[0].index];
    tensor.requires_grad = true;
    if (given.size() == 2) {
      LOCKSTEP_ASSIGN_OR_RETURN(tensor.requires_grad, Bool(given[1]));
    }
  } else if (!given.empty()) {
    return Malformed("a tensor with a wrong argument");
  }
  tensor.parameter = parameter;
  return AddTensor(std::move(tensor));
}

// The value that is made of an object has its own copy of the bytes among its arguments and its state.
absl::Status PickleBuilder::ChargeBytes(PickleNode node) {
  if (node.kind != PickleKind::kTuple) return absl::OkStatus();
  for (const PickleNode item : graph_.sequences[node.index]) {
    if (item.kind == PickleKind::kBytes) LOCKSTEP_RETURN_IF_ERROR(Charge(graph_.strings[item.index].size()));
  }
  return Charge(graph_.sequences[node.index].size() * sizeof(PickleNode));
}

absl::StatusOr<PickleNode> PickleBuilder::Object(PickleNode callable, PickleNode arguments) {
  LOCKSTEP_RETURN_IF_ERROR(Charge(kObjectCost));
  LOCKSTEP_RETURN_IF_ERROR(ChargeBytes(arguments));
  const GlobalRef& made = globals_[callable.index];
  graph_.objects.push_back({made.module, made.name, arguments, PickleNode()});
  return Indexed(PickleKind::kObject, graph_.objects.size());
}

absl::StatusOr<PickleNode> PickleBuilder::Storage(PickleNode id) {
  const PickleNode refused = RefusedIn(PickleNode(), id);
  if (refused.kind == PickleKind::kRefused) return refused;
  // A sixth part is of torch.save's legacy format, in which a storage could be a part of another.
  const size_t count = id.kind == PickleKind::kTuple ? graph_.sequences[id.index].size() : 0;
  if (count != 5 && count != 6) return Malformed("a persistent id that is not a storage");
  const Arguments& parts = graph_.sequences[id.index];
  if (count == 6 && parts[5].kind != PickleKind::kNone)
    return absl::UnimplementedError("a storage that is a part of another is not supported");
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view tag, Text(parts[0]));
  if (tag != "storage" || !IsGlobal(parts[1], PickleGlobal::kStorageType))
    return Malformed("a persistent id that is not a storage");
  PickleStorage storage;
  storage.type = globals_[parts[1].index].name;
  LOCKSTEP_ASSIGN_OR_RETURN(storage.key, Text(parts[2]));
  LOCKSTEP_ASSIGN_OR_RETURN(storage.location, Text(parts[3]));
  LOCKSTEP_ASSIGN_OR_RETURN(storage.count, Int(parts[4]));
  LOCKSTEP_RETURN_IF_ERROR(Charge(kStorageCost));
  graph_.storages.push_back(storage);
  return Indexed(PickleKind::kStorage, graph_.storages.size());
}

}  // namespace lockstep::checkpoint::pickle
