#include "lockstep/checkpoint/optim/lr_scheduler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/fields.h"
#include "lockstep/checkpoint/optim/scheduler.h"

namespace lockstep::checkpoint {
namespace optim {

struct SchedulerState {
  Groups groups;
  SchedulerPtr scheduler;
};

}  // namespace optim

namespace {

using optim::Fields;
using optim::Groups;

absl::Status Read(optim::SchedulerState& state, const Value& state_dict) {
  Fields reader(state_dict);
  state.scheduler->Describe(reader);
  LOCKSTEP_RETURN_IF_ERROR(reader.status());
  return state.scheduler->CheckState(state.groups);
}

// The groups of an optimizer's state, of which there must be `size`.
absl::StatusOr<std::vector<Value>> GroupsOf(const Value& optimizer_state, size_t size) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Value> groups, GetItems(optimizer_state, "param_groups"));
  for (size_t i = 0; i < groups.size(); ++i)
    LOCKSTEP_RETURN_IF_ERROR(GetDict(optimizer_state, {"param_groups", i}).status());
  if (groups.size() >= size) return groups;
  return absl::InvalidArgumentError(
      absl::StrCat("[\"param_groups\"]: ", groups.size(), " groups, the optimizer has ", size));
}

// Python writes params last.
Value WithKeys(const Value& group, const Value& added) {
  Value extended = Value::Dict();
  for (const auto& [key, value] : group.entries()) {
    if (!Identical(key, "params")) extended.Set(key, value);
  }
  for (const auto& [key, value] : added.entries()) extended.Set(key, value);
  if (const Value* const params = group.Find("params")) extended.Set("params", *params);
  return extended;
}

}  // namespace

LRScheduler::LRScheduler(std::unique_ptr<optim::SchedulerState> state) : state_(std::move(state)) {}
LRScheduler::LRScheduler(LRScheduler&&) noexcept = default;
LRScheduler& LRScheduler::operator=(LRScheduler&&) noexcept = default;
LRScheduler::~LRScheduler() = default;

absl::StatusOr<LRScheduler> LRScheduler::Create(torch::optim::Optimizer* optimizer, const Schedule& schedule) {
  auto state =
      std::make_unique<optim::SchedulerState>(optim::SchedulerState{Groups(optimizer), optim::MakeScheduler(schedule)});
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("LRScheduler", [&] { state->groups.Rates(); }));
  LOCKSTEP_RETURN_IF_ERROR(state->scheduler->Check(state->groups));
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("LRScheduler", [&] { state->scheduler->Create(state->groups); }));
  return LRScheduler(std::move(state));
}

void LRScheduler::Step() { state_->scheduler->Step(state_->groups); }
void LRScheduler::Step(double value) { state_->scheduler->Step(state_->groups, value); }

const std::vector<double>& LRScheduler::GetLastLr() const { return state_->scheduler->last_lr(); }

Value LRScheduler::StateDict() const {
  Fields writer;
  state_->scheduler->Describe(writer);
  return writer.dict();
}

absl::Status LRScheduler::LoadStateDict(const Value& state_dict) {
  const Value before = StateDict();
  const absl::Status status = Read(*state_, state_dict);
  if (!status.ok()) Read(*state_, before).IgnoreError();  // it was valid
  return status;
}

absl::StatusOr<Value> LRScheduler::AddToOptimizerState(Value optimizer_state) const {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Value> groups, GroupsOf(optimizer_state, state_->groups.size()));
  for (size_t i = 0; i < state_->groups.size(); ++i) groups[i] = WithKeys(groups[i], state_->groups.added(i));
  optimizer_state.Set("param_groups", Value::List(std::move(groups)));
  return optimizer_state;
}

absl::Status LRScheduler::LoadFromOptimizerState(const Value& optimizer_state) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> groups, GroupsOf(optimizer_state, state_->groups.size()));
  Groups read = state_->groups;
  for (size_t i = 0; i < read.size(); ++i) {
    for (const auto& [key, value] : state_->groups.added(i).entries()) {
      if (!groups[i].Find(key)) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(const double number, optim::GetNumber(groups[i], key.string_value()));
      read.Add(i, key.string_value(), number);
    }
  }
  state_->groups = std::move(read);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint
