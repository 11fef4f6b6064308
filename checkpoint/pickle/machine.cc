#include "lockstep/checkpoint/pickle/machine.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pickle/refusals.h"

namespace lockstep::checkpoint::pickle {
namespace {

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

}  // namespace

absl::Status PickleMachine::ChargeDepth() {
  if (stack_.size() + marks_.size() <= deepest_) return absl::OkStatus();
  deepest_ = stack_.size() + marks_.size();
  return builder_.Charge(2 * sizeof(PickleNode));
}

absl::StatusOr<PickleNode> PickleMachine::Refuse(const absl::Status& status) {
  LOCKSTEP_RETURN_IF_ERROR(builder_.Charge(CostOfRefusal(status)));
  return AddRefusal(status, byte_, builder_.graph());
}

absl::Status PickleMachine::Push(absl::StatusOr<PickleNode> node) {
  if (IsRefusal(node.status())) node = Refuse(node.status());
  LOCKSTEP_RETURN_IF_ERROR(node.status());
  LOCKSTEP_RETURN_IF_ERROR(ChargeDepth());
  stack_.push_back(*node);
  return absl::OkStatus();
}

absl::StatusOr<PickleNode> PickleMachine::Top() const {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) return Malformed("the pickle's stack is empty");
  return stack_.back();
}

absl::StatusOr<PickleNode> PickleMachine::Take() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode node, Top());
  stack_.pop_back();
  return node;
}

absl::StatusOr<std::vector<PickleNode>> PickleMachine::TakeToMark() {
  if (marks_.empty()) return Malformed("the pickle's mark is missing");
  std::vector<PickleNode> items(stack_.begin() + marks_.back(), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

absl::Status PickleMachine::Mark() {
  LOCKSTEP_RETURN_IF_ERROR(ChargeDepth());
  marks_.push_back(stack_.size());
  return absl::OkStatus();
}

absl::Status PickleMachine::Put(size_t number) {
  if (number >= size_) return Malformed("a memo number is out of range");
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

absl::Status PickleMachine::Get(size_t number) {
  if (number >= memo_.size() || memo_[number].kind == PickleKind::kUnset)
    return Malformed("a memo number that was never given");
  return Push(memo_[number]);
}

absl::Status PickleMachine::Long(absl::string_view bytes) {
  if (bytes.size() > 8) return Push(builder_.Digits(bytes));
  uint64_t value = !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return Int(static_cast<int64_t>(value));
}

// A float is not shared when it is written, so each is an object.
absl::Status PickleMachine::Float(double value) {
  PickleNode node;
  node.kind = PickleKind::kDouble;
  node.real = value;
  if (std::isnan(value)) node.nan = ++nans_;
  return Push(node);
}

absl::Status PickleMachine::StackGlobal() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode name, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode module, Take());
  if (name.kind != PickleKind::kString || module.kind != PickleKind::kString)
    return Malformed("an object without a name");
  return Global(builder_.graph().strings[module.index], builder_.graph().strings[name.index]);
}

absl::Status PickleMachine::PersistentId() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode id, Take());
  return Push(builder_.Storage(id));
}

absl::Status PickleMachine::TupleOf(size_t count) {
  std::vector<PickleNode> items(count);
  for (size_t i = count; i-- > 0;) {
    LOCKSTEP_ASSIGN_OR_RETURN(items[i], Take());
  }
  return Push(builder_.Sequence(PickleKind::kTuple, std::move(items)));
}

absl::Status PickleMachine::Tuple() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<PickleNode> items, TakeToMark());
  return Push(builder_.Sequence(PickleKind::kTuple, std::move(items)));
}

absl::Status PickleMachine::Append() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode item, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode list, Top());
  return builder_.Append(list, item);
}

absl::Status PickleMachine::Appends() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PickleNode> items, TakeToMark());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode list, Top());
  for (const PickleNode item : items) LOCKSTEP_RETURN_IF_ERROR(builder_.Append(list, item));
  return absl::OkStatus();
}

// If the key is refused, the entry stays, so that its path is found.
absl::Status PickleMachine::Set(PickleNode dict, PickleNode key, PickleNode value) {
  const absl::Status status = builder_.SetItem(dict, key, value);
  if (!IsRefusal(status)) return status;
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode refused, Refuse(status));
  return builder_.SetItem(dict, refused, value);
}

absl::Status PickleMachine::SetItem() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode value, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode key, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode dict, Top());
  return Set(dict, key, value);
}

absl::Status PickleMachine::SetItems() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PickleNode> items, TakeToMark());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode dict, Top());
  if (items.size() % 2 != 0) return Malformed("a key without a value");
  for (size_t i = 0; i < items.size(); i += 2) LOCKSTEP_RETURN_IF_ERROR(Set(dict, items[i], items[i + 1]));
  return absl::OkStatus();
}

absl::Status PickleMachine::FrozenSet() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<PickleNode> items, TakeToMark());
  return Push(builder_.Sequence(PickleKind::kList, std::move(items)));
}

absl::Status PickleMachine::Make(Maker maker) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode arguments, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode callable, Take());
  return Push((builder_.*maker)(callable, arguments));
}

// `type`.__new__(`type`, *arguments, **keywords): keywords are of classes that are refused.
absl::Status PickleMachine::NewObjectEx() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode keywords, Take());
  if (keywords.kind != PickleKind::kDict && keywords.kind != PickleKind::kRefused)
    return Malformed("an object whose keywords are not a dict");
  return NewObject();
}

absl::Status PickleMachine::Duplicate() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode node, Top());
  return Push(node);
}

absl::Status PickleMachine::Build() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode state, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode object, Top());
  SetStateOfRefusal(object, state, builder_.graph());
  const absl::Status status = builder_.SetState(object, state);
  if (!IsRefusal(status)) return status;
  LOCKSTEP_ASSIGN_OR_RETURN(stack_.back(), Refuse(status));
  return absl::OkStatus();
}

absl::Status PickleMachine::Stop() {
  LOCKSTEP_ASSIGN_OR_RETURN(builder_.graph().root, Take());
  return stack_.empty() && marks_.empty() ? absl::OkStatus() : Malformed("the pickle leaves objects behind");
}

absl::Status PickleMachine::Failure(const absl::Status& error) {
  return builder_.graph().refused.empty() ? Annotate(error, absl::StrCat("byte ", byte_))
                                          : FirstRefusal(builder_.graph());
}

}  // namespace lockstep::checkpoint::pickle
