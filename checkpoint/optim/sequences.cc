// The schedulers of schedulers: one after the other, and all at the same time.

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/scheduler.h"

namespace lockstep::checkpoint::optim {
namespace {

template <typename T>
bool Holds(const Schedule& schedule) {
  return std::holds_alternative<T>(schedule);
}

class MembersScheduler : public Scheduler {
 public:
  explicit MembersScheduler(const std::vector<Schedule>& schedules) {
    for (const Schedule& schedule : schedules) {
      members_.push_back(MakeScheduler(schedule));
      has_plateau_ |= Holds<ReduceLROnPlateau>(schedule);
    }
  }

  absl::Status Check(Groups& groups) const override {
    if (members_.empty()) return absl::InvalidArgumentError("no schedulers");
    if (has_plateau_)
      return absl::InvalidArgumentError("schedulers have a ReduceLROnPlateau, expected schedules that need no metric");
    for (const SchedulerPtr& member : members_) LOCKSTEP_RETURN_IF_ERROR(member->Check(groups));
    return absl::OkStatus();
  }
  void Create(Groups& groups) override {
    for (const SchedulerPtr& member : members_) member->Create(groups);
  }
  void Step(Groups&, double) override {
    ThrowIfError(absl::InvalidArgumentError("expected Step(): schedulers in a scheduler take no epoch"));
  }

  void Describe(Fields& fields) override {
    DescribeOwn(fields);
    fields.Doubles("_last_lr", last_lr_);
    if (steps_initially_) {
      fields.WriteOnly("_step_count", 0);
      fields.WriteOnly("_is_initial", false);
    }
    fields.Field("_schedulers", MembersValue(), [&](const Value& found) { return ReadMembers(found); });
  }
  absl::Status CheckState(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(Check(groups));
    for (const SchedulerPtr& member : members_) LOCKSTEP_RETURN_IF_ERROR(member->CheckState(groups));
    return CheckLastLr(groups);
  }

  // As in Python, only the members go back.
  void Undo() override {
    for (const SchedulerPtr& member : members_) member->Undo();
  }
  void StepInitially(Groups& groups) override {
    steps_initially_ = true;
    Step(groups);
  }
  void StartOver(Groups&) override {}  // is refused by Check()

 protected:
  virtual void DescribeOwn(Fields&) {}

  using Scheduler::Step;
  std::vector<SchedulerPtr> members_;

 private:
  Value MembersValue() {
    Value states = Value::List();
    for (const SchedulerPtr& member : members_) {
      Fields writer;
      member->Describe(writer);
      states.Append(writer.dict());
    }
    return states;
  }
  absl::Status ReadMembers(const Value& found) {
    if (!found.is_list() || found.size() != members_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("expected a list of ", members_.size(),
                                                     " schedulers' states, found ", found.type_name(), " of ",
                                                     found.size()));
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      Fields reader(found.items()[i]);
      members_[i]->Describe(reader);
      LOCKSTEP_RETURN_IF_ERROR(Annotate(reader.status(), KeyPath({i}).ToString()));
    }
    return absl::OkStatus();
  }

  bool has_plateau_ = false;
  bool steps_initially_ = false;  // true for the first of a SequentialLR
};

class SequentialScheduler : public MembersScheduler {
 public:
  explicit SequentialScheduler(const SequentialLR& options)
      : MembersScheduler(options.schedulers), milestones_(options.milestones) {
    for (size_t i = 1; i < options.schedulers.size(); ++i)
      later_has_members_ |=
          Holds<SequentialLR>(options.schedulers[i]) || Holds<ChainedScheduler>(options.schedulers[i]);
  }

  absl::Status Check(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(MembersScheduler::Check(groups));
    const auto error = [&](absl::string_view expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("milestones are [", absl::StrJoin(milestones_, ", "), "], expected ", expected));
    };
    if (milestones_.size() != members_.size() - 1)
      return error(absl::StrCat("one less than the ", members_.size(), " schedulers"));
    for (size_t i = 0; i < milestones_.size(); ++i) {
      if (milestones_[i] <= (i == 0 ? 0 : milestones_[i - 1])) return error("to ascend from 1 on");
    }
    if (!later_has_members_) return absl::OkStatus();
    return absl::InvalidArgumentError("a SequentialLR or ChainedScheduler begins at a milestone, expected it first");
  }
  void Create(Groups& groups) override {
    MembersScheduler::Create(groups);
    std::vector<double> initial;
    for (size_t i = 0; i < groups.size(); ++i) initial.push_back(groups.Added(i, "initial_lr"));
    groups.SetRates(initial);
    Undo();
    members_[0]->StepInitially(groups);
    last_lr_ = members_[0]->last_lr();
  }
  using MembersScheduler::Step;
  void Step(Groups& groups) override {
    ++last_epoch_;
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
    Scheduler& member = *members_[next - milestones_.begin()];
    const bool begins = next != milestones_.begin() && *(next - 1) == last_epoch_;
    begins ? member.StartOver(groups) : member.Step(groups);
    last_lr_ = member.last_lr();
  }

 private:
  void DescribeOwn(Fields& fields) override {
    fields.Ints("_milestones", milestones_);
    fields.Int("last_epoch", last_epoch_);
  }
  absl::Status CheckState(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(MembersScheduler::CheckState(groups));
    if (last_epoch_ >= -1 && last_epoch_ <= kMostEpochs) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("[\"last_epoch\"]: expected an epoch, found ", last_epoch_));
  }

  std::vector<int64_t> milestones_;
  int64_t last_epoch_ = 0;
  bool later_has_members_ = false;
};

class ChainedSchedulers : public MembersScheduler {
 public:
  explicit ChainedSchedulers(const ChainedScheduler& options) : MembersScheduler(options.schedulers) {}

  void Create(Groups& groups) override {
    MembersScheduler::Create(groups);
    KeepRates(groups);
  }
  using MembersScheduler::Step;
  void Step(Groups& groups) override {
    for (const SchedulerPtr& member : members_) member->Step(groups);
    KeepRates(groups);
  }
};

}  // namespace

SchedulerPtr Make(const SequentialLR& options) { return std::make_unique<SequentialScheduler>(options); }
SchedulerPtr Make(const ChainedScheduler& options) { return std::make_unique<ChainedSchedulers>(options); }

}  // namespace lockstep::checkpoint::optim
