#include "lockstep/checkpoint/pickle/machine.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pickle/ops.h"

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
  LOCKSTEP_RETURN_IF_ERROR(builder_.Charge(PickleRefusals::Cost(status)));
  return refusals_.Add(status, byte_);
}

absl::Status PickleMachine::Push(absl::StatusOr<PickleNode> node) {
  if (PickleRefusals::Is(node.status())) node = Refuse(node.status());
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
  if (!PickleRefusals::Is(status)) return status;
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
  LOCKSTEP_RETURN_IF_ERROR(TakeToMark().status());
  return Refused(OpcodeError(kOpFrozenSet));
}

absl::Status PickleMachine::AddItems() {
  LOCKSTEP_RETURN_IF_ERROR(TakeToMark().status());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode set, Top());
  return set.kind == PickleKind::kRefused ? absl::OkStatus() : Malformed("items for an object that is not a set");
}

absl::Status PickleMachine::Make(Maker maker) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode arguments, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode callable, Take());
  return Push((builder_.*maker)(callable, arguments));
}

absl::Status PickleMachine::Build() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode state, Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleNode object, Top());
  refusals_.SetState(object, state, builder_.graph());
  const absl::Status status = builder_.SetState(object, state);
  if (!PickleRefusals::Is(status)) return status;
  LOCKSTEP_ASSIGN_OR_RETURN(stack_.back(), Refuse(status));
  return absl::OkStatus();
}

absl::Status PickleMachine::Stop() {
  LOCKSTEP_ASSIGN_OR_RETURN(builder_.graph().root, Take());
  return stack_.empty() && marks_.empty() ? absl::OkStatus() : Malformed("the pickle leaves objects behind");
}

absl::Status PickleMachine::Failure(const absl::Status& error) const {
  return refusals_.empty() ? Annotate(error, absl::StrCat("byte ", byte_)) : refusals_.First();
}

absl::StatusOr<PickleGraph> PickleMachine::Finish() {
  if (!refusals_.empty()) return refusals_.Locate(builder_.graph());
  return std::move(builder_.graph());
}

}  // namespace lockstep::checkpoint::pickle
