#include "lockstep/checkpoint/pickle/reader.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pickle/builder.h"
#include "lockstep/checkpoint/pickle/ops.h"
#include "lockstep/checkpoint/pickle/refusals.h"

namespace lockstep::checkpoint::pickle {
namespace {

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

// The pickle machine: a stack, marks in it, and a memo of numbered objects.
class Machine {
 public:
  Machine(absl::string_view pickle, size_t memory_limit, const PickleClasses& classes)
      : pickle_(pickle), builder_(memory_limit, classes) {}

  absl::StatusOr<PickleGraph> Run();

 private:
  using Handler = absl::Status (Machine::*)();
  using Maker = absl::StatusOr<PickleNode> (PickleBuilder::*)(PickleNode callable, PickleNode arguments);
  static const std::array<Handler, 256>& Handlers();

  absl::Status Step();
  absl::StatusOr<PickleNode> Refuse(const absl::Status& status);
  absl::StatusOr<absl::string_view> Take(size_t count);
  absl::StatusOr<absl::string_view> TakeLine();
  template <typename T>
  absl::StatusOr<T> TakeInt();

  absl::Status ChargeDepth();
  absl::Status Push(absl::StatusOr<PickleNode> node);
  absl::StatusOr<PickleNode> Pop();
  absl::StatusOr<PickleNode> Top();
  absl::StatusOr<std::vector<PickleNode>> PopToMark();

  absl::Status SetItem(PickleNode dict, PickleNode key, PickleNode value);
  absl::Status Put(size_t number);
  absl::Status Get(size_t number);
  absl::Status Text(absl::StatusOr<size_t> size, PickleKind kind);
  absl::Status MakeBy(Maker maker);

  template <typename T>
  absl::Status OpInt();
  template <typename T>
  absl::Status OpPut();
  template <typename T>
  absl::Status OpGet();
  template <typename T, PickleKind kind>
  absl::Status OpText();
  template <int count>
  absl::Status OpTupleOf();
  absl::Status OpProto();
  absl::Status OpFrame() { return Take(8).status(); }
  absl::Status OpStop();
  absl::Status OpPop() { return Pop().status(); }
  absl::Status OpMark();
  absl::Status OpNone() { return Push(PickleNode()); }
  absl::Status OpTrue() { return Push(BoolNode(true)); }
  absl::Status OpFalse() { return Push(BoolNode(false)); }
  absl::Status OpFloat();
  absl::Status OpLong();
  absl::Status OpList() { return Push(builder_.Sequence(PickleKind::kList, {})); }
  absl::Status OpDict() { return Push(builder_.Dict(PickleDictKind::kDict)); }
  absl::Status OpTuple();
  absl::Status OpAppend();
  absl::Status OpAppends();
  absl::Status OpSetItem();
  absl::Status OpSetItems();
  absl::Status OpGlobal();
  absl::Status OpStackGlobal();
  absl::Status OpReduce() { return MakeBy(&PickleBuilder::Call); }
  absl::Status OpNewObj() { return MakeBy(&PickleBuilder::New); }
  absl::Status OpBuild();
  template <typename T>
  absl::Status OpRefusedText();
  absl::Status OpEmptySet() { return Push(OpcodeError(kOpEmptySet)); }
  absl::Status OpFrozenSet();
  absl::Status OpAddItems();
  absl::Status OpPersistentId();
  absl::Status OpMemoize() { return Put(memo_.size()); }

  absl::string_view pickle_;
  size_t start_ = 0;  // of the opcode under way
  size_t position_ = 0;
  bool stopped_ = false;
  uint32_t nans_ = 0;
  PickleBuilder builder_;
  PickleRefusals refusals_;
  std::vector<PickleNode> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleNode> memo_;
  size_t deepest_ = 0;
};

absl::StatusOr<absl::string_view> Machine::Take(size_t count) {
  if (count > pickle_.size() - position_) return Malformed("the pickle ends in the middle");
  const absl::string_view taken = pickle_.substr(position_, count);
  position_ += count;
  return taken;
}

absl::StatusOr<absl::string_view> Machine::TakeLine() {
  const size_t end = pickle_.find('\n', position_);
  if (end == absl::string_view::npos) return Malformed("the pickle ends in the middle");
  const absl::string_view line = pickle_.substr(position_, end - position_);
  position_ = end + 1;
  return line;
}

template <typename T>
absl::StatusOr<T> Machine::TakeInt() {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view bytes, Take(sizeof(T)));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

absl::Status Machine::ChargeDepth() {
  if (stack_.size() + marks_.size() <= deepest_) return absl::OkStatus();
  deepest_ = stack_.size() + marks_.size();
  return builder_.Charge(2 * sizeof(PickleNode));
}

absl::StatusOr<PickleNode> Machine::Refuse(const absl::Status& status) {
  LOCKSTEP_RETURN_IF_ERROR(builder_.Charge(PickleRefusals::Cost(status)));
  return refusals_.Add(status, start_);
}

absl::Status Machine::Push(absl::StatusOr<PickleNode> node) {
  if (PickleRefusals::Is(node.status())) node = Refuse(node.status());
  LOCKSTEP_RETURN_IF_ERROR(node.status());
  LOCKSTEP_RETURN_IF_ERROR(ChargeDepth());
  stack_.push_back(*node);
  return absl::OkStatus();
}

absl::StatusOr<PickleNode> Machine::Top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) return Malformed("the pickle's stack is empty");
  return stack_.back();
}

absl::StatusOr<PickleNode> Machine::Pop() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode node, Top());
  stack_.pop_back();
  return node;
}

absl::StatusOr<std::vector<PickleNode>> Machine::PopToMark() {
  if (marks_.empty()) return Malformed("the pickle's mark is missing");
  std::vector<PickleNode> items(stack_.begin() + marks_.back(), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

absl::Status Machine::Put(size_t number) {
  // A pickler numbers in order, so a number past the pickle's size is made up.
  if (number >= pickle_.size()) return Malformed("a memo number is out of range");
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode node, Top());
  if (number >= memo_.size()) {
    LOCKSTEP_RETURN_IF_ERROR(builder_.Charge((number + 1 - memo_.size()) * 2 * sizeof(PickleNode)));
    PickleNode unset;
    unset.kind = PickleKind::kUnset;
    memo_.resize(number + 1, unset);
  }
  memo_[number] = node;
  return absl::OkStatus();
}

absl::Status Machine::Get(size_t number) {
  if (number >= memo_.size() || memo_[number].kind == PickleKind::kUnset)
    return Malformed("a memo number that was never given");
  return Push(memo_[number]);
}

absl::Status Machine::Text(absl::StatusOr<size_t> size, PickleKind kind) {
  LOCKSTEP_RETURN_IF_ERROR(size.status());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view text, Take(*size));
  return Push(builder_.String(text, kind));
}

template <int count>
absl::Status Machine::OpTupleOf() {
  std::vector<PickleNode> items(count);
  for (size_t i = count; i-- > 0;) {
    LOCKSTEP_ASSIGN_OR_RETURN(items[i], Pop());
  }
  return Push(builder_.Sequence(PickleKind::kTuple, std::move(items)));
}

template <typename T>
absl::Status Machine::OpInt() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T value, TakeInt<T>());
  return Push(IntNode(value));
}

template <typename T>
absl::Status Machine::OpPut() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T number, TakeInt<T>());
  return Put(number);
}

template <typename T>
absl::Status Machine::OpGet() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T number, TakeInt<T>());
  return Get(number);
}

template <typename T, PickleKind kind>
absl::Status Machine::OpText() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T size, TakeInt<T>());
  return Text(size, kind);
}

absl::Status Machine::OpProto() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint8_t protocol, TakeInt<uint8_t>());
  if (protocol < 2 || protocol > 5)
    return absl::UnimplementedError(absl::StrCat("pickle protocol ", protocol, " is not supported"));
  return absl::OkStatus();
}

absl::Status Machine::OpStop() {
  LOCKSTEP_ASSIGN_OR_RETURN(builder_.graph().root, Pop());
  if (!stack_.empty() || !marks_.empty()) return Malformed("the pickle leaves objects behind");
  if (position_ != pickle_.size()) return Malformed("the pickle ends before its record");
  stopped_ = true;
  return absl::OkStatus();
}

absl::Status Machine::OpMark() {
  LOCKSTEP_RETURN_IF_ERROR(ChargeDepth());
  marks_.push_back(stack_.size());
  return absl::OkStatus();
}

// A float is not shared when it is written, so each is an object.
absl::Status Machine::OpFloat() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bits, TakeInt<uint64_t>());
  const uint64_t swapped = __builtin_bswap64(bits);
  PickleNode node;
  node.kind = PickleKind::kDouble;
  std::memcpy(&node.real, &swapped, sizeof(swapped));
  if (std::isnan(node.real)) node.nan = ++nans_;
  return Push(node);
}

// Little-endian two's complement of any length.
absl::Status Machine::OpLong() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint8_t size, TakeInt<uint8_t>());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view bytes, Take(size));
  if (size > 8) return Push(OpcodeError(kOpLong4));
  uint64_t value = size > 0 && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
  std::memcpy(&value, bytes.data(), size);
  return Push(IntNode(static_cast<int64_t>(value)));
}

absl::Status Machine::OpTuple() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<PickleNode> items, PopToMark());
  return Push(builder_.Sequence(PickleKind::kTuple, std::move(items)));
}

absl::Status Machine::OpAppend() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode item, Pop());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode list, Top());
  return builder_.Append(list, item);
}

absl::Status Machine::OpAppends() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PickleNode> items, PopToMark());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode list, Top());
  for (const PickleNode item : items) LOCKSTEP_RETURN_IF_ERROR(builder_.Append(list, item));
  return absl::OkStatus();
}

// Where the key is refused, the entry stays, so that its place is found.
absl::Status Machine::SetItem(PickleNode dict, PickleNode key, PickleNode value) {
  const absl::Status status = builder_.SetItem(dict, key, value);
  if (!PickleRefusals::Is(status)) return status;
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode refused, Refuse(status));
  return builder_.SetItem(dict, refused, value);
}

absl::Status Machine::OpSetItem() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode value, Pop());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode key, Pop());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode dict, Top());
  return SetItem(dict, key, value);
}

absl::Status Machine::OpSetItems() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PickleNode> items, PopToMark());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode dict, Top());
  if (items.size() % 2 != 0) return Malformed("a key without a value");
  for (size_t i = 0; i < items.size(); i += 2) LOCKSTEP_RETURN_IF_ERROR(SetItem(dict, items[i], items[i + 1]));
  return absl::OkStatus();
}

absl::Status Machine::OpGlobal() {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view module, TakeLine());
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view name, TakeLine());
  return Push(builder_.Global(module, name));
}

absl::Status Machine::OpStackGlobal() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode name, Pop());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode module, Pop());
  if (name.kind != PickleKind::kString || module.kind != PickleKind::kString)
    return Malformed("an object without a name");
  return Push(builder_.Global(builder_.graph().strings[module.index], builder_.graph().strings[name.index]));
}

absl::Status Machine::MakeBy(Maker maker) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode arguments, Pop());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode callable, Pop());
  return Push((builder_.*maker)(callable, arguments));
}

absl::Status Machine::OpBuild() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode state, Pop());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode object, Top());
  refusals_.SetState(object, state, builder_.graph());
  const absl::Status status = builder_.SetState(object, state);
  if (!PickleRefusals::Is(status)) return status;
  LOCKSTEP_ASSIGN_OR_RETURN(stack_.back(), Refuse(status));
  return absl::OkStatus();
}

// An int, of four bytes of length, or a bytearray, of eight.
template <typename T>
absl::Status Machine::OpRefusedText() {
  LOCKSTEP_ASSIGN_OR_RETURN(const T size, TakeInt<T>());
  LOCKSTEP_RETURN_IF_ERROR(Take(size).status());
  return Push(OpcodeError(sizeof(T) == sizeof(uint32_t) ? kOpLong4 : kOpByteArray8));
}

absl::Status Machine::OpFrozenSet() {
  LOCKSTEP_RETURN_IF_ERROR(PopToMark().status());
  return Push(OpcodeError(kOpFrozenSet));
}

absl::Status Machine::OpAddItems() {
  LOCKSTEP_RETURN_IF_ERROR(PopToMark().status());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode set, Top());
  return set.kind == PickleKind::kRefused ? absl::OkStatus() : Malformed("items for what is not a set");
}

absl::Status Machine::OpPersistentId() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode id, Pop());
  return Push(builder_.Storage(id));
}

const std::array<Machine::Handler, 256>& Machine::Handlers() {
  static const std::array<Handler, 256> handlers = [] {
    std::array<Handler, 256> table{};
    table[kOpProto] = &Machine::OpProto;
    table[kOpFrame] = &Machine::OpFrame;
    table[kOpStop] = &Machine::OpStop;
    table[kOpPop] = &Machine::OpPop;
    table[kOpMark] = &Machine::OpMark;
    table[kOpNone] = &Machine::OpNone;
    table[kOpNewTrue] = &Machine::OpTrue;
    table[kOpNewFalse] = &Machine::OpFalse;
    table[kOpBinInt] = &Machine::OpInt<int32_t>;
    table[kOpBinInt1] = &Machine::OpInt<uint8_t>;
    table[kOpBinInt2] = &Machine::OpInt<uint16_t>;
    table[kOpLong1] = &Machine::OpLong;
    table[kOpBinFloat] = &Machine::OpFloat;
    // A Python 2 str is text, as torch.load reads it.
    table[kOpBinString] = &Machine::OpText<uint32_t, PickleKind::kString>;
    table[kOpShortBinString] = &Machine::OpText<uint8_t, PickleKind::kString>;
    table[kOpBinUnicode] = &Machine::OpText<uint32_t, PickleKind::kString>;
    table[kOpShortBinUnicode] = &Machine::OpText<uint8_t, PickleKind::kString>;
    table[kOpBinBytes] = &Machine::OpText<uint32_t, PickleKind::kBytes>;
    table[kOpShortBinBytes] = &Machine::OpText<uint8_t, PickleKind::kBytes>;
    table[kOpEmptyList] = &Machine::OpList;
    table[kOpEmptyDict] = &Machine::OpDict;
    table[kOpEmptyTuple] = &Machine::OpTupleOf<0>;
    table[kOpTuple1] = &Machine::OpTupleOf<1>;
    table[kOpTuple2] = &Machine::OpTupleOf<2>;
    table[kOpTuple3] = &Machine::OpTupleOf<3>;
    table[kOpTuple] = &Machine::OpTuple;
    table[kOpAppend] = &Machine::OpAppend;
    table[kOpAppends] = &Machine::OpAppends;
    table[kOpSetItem] = &Machine::OpSetItem;
    table[kOpSetItems] = &Machine::OpSetItems;
    table[kOpGlobal] = &Machine::OpGlobal;
    table[kOpStackGlobal] = &Machine::OpStackGlobal;
    table[kOpReduce] = &Machine::OpReduce;
    table[kOpNewObj] = &Machine::OpNewObj;
    table[kOpBuild] = &Machine::OpBuild;
    table[kOpBinPersId] = &Machine::OpPersistentId;
    table[kOpBinPut] = &Machine::OpPut<uint8_t>;
    table[kOpLongBinPut] = &Machine::OpPut<uint32_t>;
    table[kOpBinGet] = &Machine::OpGet<uint8_t>;
    table[kOpLongBinGet] = &Machine::OpGet<uint32_t>;
    table[kOpMemoize] = &Machine::OpMemoize;
    table[kOpLong4] = &Machine::OpRefusedText<uint32_t>;
    table[kOpByteArray8] = &Machine::OpRefusedText<uint64_t>;
    table[kOpEmptySet] = &Machine::OpEmptySet;
    table[kOpFrozenSet] = &Machine::OpFrozenSet;
    table[kOpAddItems] = &Machine::OpAddItems;
    return table;
  }();
  return handlers;
}

absl::Status Machine::Step() {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint8_t op, TakeInt<uint8_t>());
  const Handler handler = Handlers()[op];
  return handler == nullptr ? OpcodeError(op) : (this->*handler)();
}

// Damage behind a refused object may come of that, so the refusal goes first.
absl::StatusOr<PickleGraph> Machine::Run() {
  while (!stopped_) {
    start_ = position_;
    const absl::Status step = Step();
    if (step.ok()) continue;
    return refusals_.empty() ? Annotate(step, absl::StrCat("byte ", start_)) : refusals_.First();
  }
  if (!refusals_.empty()) return refusals_.Locate(builder_.graph());
  return std::move(builder_.graph());
}

}  // namespace

absl::StatusOr<PickleGraph> ReadPickle(absl::string_view pickle, size_t memory_limit, const PickleClasses& classes) {
  return Machine(pickle, memory_limit, classes).Run();
}

}  // namespace lockstep::checkpoint::pickle
