#include "lockstep/elastic/world.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/form_group.h"
#include "lockstep/elastic/internal/healing.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/link_watcher.h"
#include "lockstep/elastic/internal/parameter_check.h"
#include "lockstep/elastic/internal/shards.h"

namespace lockstep::elastic {

using checkpoint::Value;
using internal::Failure;
using internal::KeptThing;
using internal::StepPart;

namespace {

// The most steps between two checks, if steps are much faster than Options::check_interval.
constexpr int64_t kMostStepsBetweenChecks = 1000;

// While there are fewer than min_ranks.
constexpr absl::Duration kPauseOfWaiting = absl::Milliseconds(10);

constexpr char kResumable[] = "lockstep.elastic.resumable";

// How much later than its consequences the death of a rank may be known.
constexpr absl::Duration kCausePatience = absl::Seconds(2);

bool IsAboutOthers(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

// The status of f(), which may throw.
template <typename F>
absl::Status StatusOf(const std::string& who, const F& f) {
  absl::Status status;
  const absl::Status thrown = TorchStatus(who, [&] { status = f(); });
  return thrown.ok() ? status : thrown;
}

// Copies of the module's buffers.
void RememberBuffers(torch::nn::Module& module, KeptThing* thing) {
  const auto copies = std::make_shared<std::vector<at::Tensor>>();
  const auto buffers = module.buffers();
  for (const at::Tensor& buffer : buffers) copies->push_back(buffer.detach().clone());
  thing->remember = [copies, buffers] {
    for (size_t i = 0; i < buffers.size(); ++i) (*copies)[i].copy_(buffers[i].detach());
  };
  thing->take_back = [copies, buffers] {
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].detach().copy_((*copies)[i]);
  };
}

}  // namespace

World::World(const Options& options, std::unique_ptr<launch::AgentLink> link)
    : options_(options),
      link_(std::move(link)),
      kept_(std::make_unique<internal::KeptState>()),
      shards_(std::make_unique<internal::Shards>()),
      part_(StepPart::kNothing),
      failures_(std::make_unique<internal::FailureBudget>(options.failures_per_cause, options.failure_window)) {}

World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Join(const Options& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  absl::StatusOr<std::unique_ptr<launch::AgentLink>> link = launch::AgentLink::Open();
  if (!link.ok()) return Annotate(link.status(), "World::Join");
  return std::unique_ptr<World>(new World(options, *std::move(link)));
}

absl::Status World::Check(const Options& options) {
  if (options.min_ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("World: min_ranks must be at least 1, but is ", options.min_ranks));
  }
  if (options.max_ranks != 0 && options.max_ranks < options.min_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("World: max_ranks must be 0, or at least min_ranks, which is ",
                                                   options.min_ranks, ", but is ", options.max_ranks));
  }
  if (options.timeout < options.leave_timeout) {
    return absl::InvalidArgumentError(absl::StrCat("World: timeout must be at least leave_timeout, which is ",
                                                   absl::FormatDuration(options.leave_timeout), ", but is ",
                                                   absl::FormatDuration(options.timeout)));
  }
  for (const auto& [name, value] : {std::pair("wait_for_ranks", options.wait_for_ranks),
                                    {"leave_timeout", options.leave_timeout},
                                    {"check_interval", options.check_interval}}) {
    if (value >= absl::ZeroDuration()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("World: ", name, " must not be negative, but is ", absl::FormatDuration(value)));
  }
  for (const auto& [name, value] : {std::pair("failures_per_cause", int64_t{options.failures_per_cause}),
                                    {"failure_window", options.failure_window},
                                    {"check_every", options.check_every},
                                    {"max_ranks", int64_t{options.max_ranks}}}) {
    if (value >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("World: ", name, " must not be negative, but is ", value));
  }
  return absl::OkStatus();
}

absl::Status World::Keep(const std::string& name, torch::nn::Module& module) {
  KeptThing thing;
  thing.save = [&module]() -> absl::StatusOr<Value> { return checkpoint::StateDict(module); };
  thing.load = [&module](const Value& value) { return checkpoint::LoadStateDict(module, value); };
  RememberBuffers(module, &thing);
  thing.shares_memory = true;
  thing.buffers = module.buffers();
  for (const auto& parameter : module.named_parameters()) {
    thing.parameters.push_back({absl::StrCat(name, ": ", parameter.key()), parameter.value()});
  }
  return kept_->Add(name, std::move(thing));
}

absl::Status World::Keep(const std::string& name, torch::optim::Optimizer& optimizer) {
  KeptThing thing;
  thing.shares_memory = true;
  thing.save = [&optimizer] { return checkpoint::OptimizerStateDict(optimizer); };
  thing.load = [&optimizer](const Value& value) {
    return checkpoint::LoadOptimizerStateDict(optimizer, value, /*copy=*/false);
  };
  return kept_->Add(name, std::move(thing));
}

absl::Status World::KeepBytes(const std::string& name, void* data, size_t size) {
  const auto copy = std::make_shared<std::string>(static_cast<const char*>(data), size);
  KeptThing thing;
  thing.save = [data, size]() -> absl::StatusOr<Value> {
    return Value::Bytes(absl::string_view(static_cast<const char*>(data), size));
  };
  thing.load = [data, size](const Value& value) { return CopyBytes(value, data, size); };
  thing.remember = [copy, data, size] { memcpy(copy->data(), data, size); };
  thing.take_back = [copy, data, size] { memcpy(data, copy->data(), size); };
  return kept_->Add(name, std::move(thing));
}

absl::Status World::CopyBytes(const Value& value, void* data, size_t size) {
  if (!value.is_bytes() || value.bytes_value().size() != size) {
    const std::string found = value.is_bytes() ? absl::StrCat(value.bytes_value().size(), " bytes") : "something else";
    return absl::InvalidArgumentError(absl::StrCat("expected ", size, " bytes, found ", found));
  }
  memcpy(data, value.bytes_value().data(), size);
  return absl::OkStatus();
}

// So that a rank that comes knows the failures before.
void World::KeepFailures() {
  KeptThing thing;
  thing.save = [this]() -> absl::StatusOr<Value> { return Failures(); };
  thing.load = [this](const Value& value) { return SetFailures(value); };
  kept_->Add("World", std::move(thing)).IgnoreError();  // kept already: Run() is called again
}

Value World::Failures() const {
  Value list = Value::List();
  for (const Failure& f : failures_->failures()) list.Append(Value::Tuple({f.step, f.rank, f.cause}));
  return list;
}

absl::Status World::SetFailures(const Value& value) {
  std::vector<Failure> failures;
  for (const Value& item : value.items()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t step, checkpoint::GetInt(item, {0}));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t rank, checkpoint::GetInt(item, {1}));
    LOCKSTEP_ASSIGN_OR_RETURN(std::string cause, checkpoint::GetString(item, {2}));
    failures.push_back({step, static_cast<int>(rank), std::move(cause)});
  }
  failures_->Restore(std::move(failures));
  return absl::OkStatus();
}

absl::Status World::Keep(const std::string& name, std::function<absl::StatusOr<Value>()> save,
                         std::function<absl::Status(const Value& value)> load) {
  KeptThing thing;
  thing.save = std::move(save);
  thing.load = std::move(load);
  return kept_->Add(name, std::move(thing));
}

absl::Status World::Run(const std::function<absl::Status(comm::ProcessGroup* group)>& train) {
  if (kept_->empty()) return absl::InvalidArgumentError("World::Run: nothing is kept: call Keep() before");
  KeepFailures();
  kept_->Remember();
  end_.reset();
  for (;;) {
    absl::Status status;
    if (!std::exchange(met_, false)) {
      LOCKSTEP_RETURN_IF_ERROR(JoinGeneration());
      status = Meet();
    }
    if (status.ok()) status = HealAndTrain(train);
    if (!met_ && !end_) end_ = Leave(status);
    left_group_.reset();
    if (end_) return *end_;
  }
}

absl::Status World::JoinGeneration() {
  launch::JoinOptions join;
  join.max_ranks = options_.max_ranks;
  join.leave_timeout = options_.leave_timeout;
  // While a new process waits, the others may need their timeout to find that a rank is stuck, and it its time to
  // leave.
  join.timeout = options_.timeout + options_.leave_timeout;
  join.reason = reason_;
  LOCKSTEP_ASSIGN_OR_RETURN(generation_, link_->Join(join));
  was_first_ |= generation_.number == 1;
  return absl::OkStatus();
}

// After `status` of the generation. nullopt: this rank joins the next one. Otherwise Run() must return the status.
// `keeps_group`: in left_group_.
std::optional<absl::Status> World::Leave(const absl::Status& status, bool keeps_group) {
  const std::optional<Failure> heard = internal::HeardFailure(status.message());
  if (heard && trains_ && heard->rank < generation_.world_size) culprit_ = heard->rank;
  // If all ranks know the culprit, one of them may have aborted the group already.
  const bool others_caused = !regroups_ && !culprit_ && !is_final_ && OthersCaused(status);
  // `train` made the error, so the ranks should repeat the step; or all of them may have made it, and none has a step.
  const bool is_own = !status.ok() && !regroups_ && !others_caused && (trains_ || Begins()) && !is_final_;
  if (is_own) {
    const int culprit = culprit_.value_or(generation_.rank);
    const std::string cause = heard ? heard->cause : std::string(status.message());
    reason_ = internal::ErrorText({std::max<int64_t>(commits_, 0), culprit, cause});
    if (group_) group_->Abort(absl::AbortedError(reason_));
  }
  watcher_.reset();
  // First of all, since this process may be killed at any time. After the barrier, or the word to give up, all have
  // done their work.
  if ((status.ok() || IsResumable(status)) && !regroups_) link_->Finish(/*all_have=*/true);
  if (keeps_group) left_group_ = std::move(group_);
  group_.reset();
  if (const auto verdict = failures_->Verdict()) {
    link_->EndJob(*verdict);
    return absl::AbortedError(absl::StrCat("World: ", *verdict));
  }
  if (!regroups_ && !is_own && !others_caused) return status;
  if (is_own && HasFailedBefore()) return absl::Status(status.code(), reason_);
  if (!regroups_ && part_ == StepPart::kNothing) kept_->TakeBack();
  if (!is_own) reason_ = regroups_ ? "" : std::string(status.message());
  return std::nullopt;
}

// Whether the job has just begun, and has not completed a step.
bool World::Begins() const { return was_first_ && commits_ <= 0; }

// An error that comes again may be this process's: no memory, a broken device. A new process does not have it. But one
// before the first step is likely a mistake that all processes make. New ones would not know how often it came.
bool World::HasFailedBefore() {
  if (Begins()) return false;
  if (culprit_.value_or(generation_.rank) != generation_.rank) return false;
  const std::optional<int64_t> before = std::exchange(own_error_, commits_);
  return generation_.world_size > 1 && before && commits_ - *before <= options_.failure_window;
}

// Whether `status`, of this generation, came from the group: a rank has died, or the launcher says so.
bool World::OthersCaused(const absl::Status& status) const {
  if (status.ok()) return false;
  absl::Status failure = group_ ? group_->failure() : status;
  // The connection to the store closes before the group knows that the rank that served it has died.
  const absl::Time until = absl::Now() + kCausePatience;
  while (failure.ok() && IsAboutOthers(status) && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(1));
    failure = group_->failure();
  }
  return IsAboutOthers(failure);
}

absl::Status World::Meet() {
  trains_ = is_final_ = regroups_ = false;
  culprit_.reset();
  CountFailure();
  // The launcher is heard while the group forms too: a rank may die then.
  LOCKSTEP_ASSIGN_OR_RETURN(watcher_, internal::LinkWatcher::Start(link_.get()));
  LOCKSTEP_ASSIGN_OR_RETURN(
      group_, internal::FormGroup(
                  generation_, options_.backend, options_.timeout, watcher_->interruption(),
                  [link = link_.get()](const comm::Stall& stall) { link->ReportStall(stall.text, stall.rank); }));
  watcher_->Guard(group_.get());
  LOCKSTEP_ASSIGN_OR_RETURN(auto healing,
                            internal::AgreeOnHealing(*group_, {progress(), part_, generation_.node_rank}, *kept_));
  healing_ = std::make_unique<internal::Healing>(std::move(healing));
  return absl::OkStatus();
}

absl::Status World::HealAndTrain(const std::function<absl::Status(comm::ProcessGroup* group)>& train) {
  LOCKSTEP_RETURN_IF_ERROR(StatusOf("World", [this] { return Heal(); }));
  if (failures_->Verdict()) return absl::AbortedError("World: the job ends");
  LOCKSTEP_RETURN_IF_ERROR(StatusOf("World", [this] { return AwaitRanks(); }));
  next_check_ = commits_ + 1;
  last_check_ = commits_;
  last_check_time_ = absl::Now();
  gpus_ = kept_->gpus();
  WatchGradients();
  trains_ = true;
  LOCKSTEP_RETURN_IF_ERROR(StatusOf("", [&] { return train(group_.get()); }));
  return met_ || end_ ? absl::OkStatus() : group_->Barrier();
}

// If the step that begins has failed before.
void World::WatchGradients() {
  watch_.reset();
  const auto is_this_step = [this](const Failure& failure) { return failure.step >= commits_; };
  if (!options_.refuse_non_finite || absl::c_none_of(failures_->failures(), is_this_step)) return;
  watch_ = std::make_unique<internal::GradientWatch>(kept_->parameters());
}

// Why the generation before ended. The launcher tells all ranks the same.
void World::CountFailure() {
  std::optional<Failure> failure = internal::OwnFailure(generation_.reason);
  if (!failure) return;
  if (failure->step < 0) failure->step = std::max<int64_t>(commits_, 0);
  failures_->Add(*failure);
}

absl::Status World::Heal() {
  if (healing_->spreads) LOCKSTEP_RETURN_IF_ERROR(CompleteStep());
  LOCKSTEP_RETURN_IF_ERROR(Take(*healing_));
  if (shards_->empty()) return absl::OkStatus();
  if (healing_->newest == 0) shards_->HaveAll();
  divided_ = true;
  return shards_->Divide(*group_, healing_->nodes);
}

absl::Status World::Take(const internal::Healing& healing) {
  if (healing.receivers.empty()) return absl::OkStatus();
  const bool receives = absl::c_linear_search(healing.receivers, group_->rank());
  const bool in_place = internal::HealsInPlace(progress(), healing.newest);
  if (receives && in_place) commits_ = internal::kNoState;
  LOCKSTEP_RETURN_IF_ERROR(internal::Heal(*group_, healing, in_place, kept_.get()));
  if (!receives) return absl::OkStatus();
  SetProgress(healing.newest);
  shards_->HaveNone();
  kept_->Remember();
  return absl::OkStatus();
}

// Until there are min_ranks. Rank 0 decides, as the ranks' clocks differ.
absl::Status World::AwaitRanks() {
  const int ranks = group_->size();
  if (ranks >= options_.min_ranks) {
    waits_until_ = absl::InfiniteFuture();
    return absl::OkStatus();
  }
  if (generation_.number == 1) {
    is_final_ = true;  // a later generation would wait
    return absl::InvalidArgumentError(
        absl::StrCat("World: min_ranks is ", options_.min_ranks, ", but the launcher has started ", ranks, " ranks"));
  }
  waits_until_ = std::min(waits_until_, absl::Now() + options_.wait_for_ranks);
  enum Word : int64_t { kWait, kRegroup, kGiveUp };
  const at::Tensor word = at::full({1}, kWait, at::kLong);
  while (word.item<int64_t>() == kWait) {
    absl::SleepFor(kPauseOfWaiting);
    word.fill_(watcher_->regroups_after_step() ? kRegroup : absl::Now() < waits_until_ ? kWait : kGiveUp);
    LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(word, 0));
  }
  if (word.item<int64_t>() == kRegroup) {
    regroups_ = true;
    return absl::AbortedError("World: the ranks regroup, since another one has come");
  }
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("World: ", ranks, " of at least ", options_.min_ranks, " ranks were there for ",
                   absl::FormatDuration(options_.wait_for_ranks), "; ", commits_, " steps are complete"));
  status.SetPayload(kResumable, absl::Cord());
  LOCKSTEP_RETURN_IF_ERROR(GatherShards());
  return status;
}

bool World::IsResumable(const absl::Status& status) { return status.GetPayload(kResumable).has_value(); }

absl::Status World::RefuseNonFinite() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto found,
                            internal::FindNonFinite(*group_, kept_->parameters(), watch_ ? watch_->found() : ""));
  if (!found) return absl::OkStatus();
  culprit_ = found->rank;
  return absl::DataLossError(found->what);
}

absl::Status World::CompareParameters() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto vote, internal::CompareParameters(*group_, kept_->parameters()));
  if (!vote) return absl::OkStatus();
  const std::string text = absl::StrCat("World: after step ", commits_ - 1, " ", vote->difference);
  is_final_ = vote->majority.empty();
  if (is_final_) return absl::DataLossError(absl::StrCat(text, ", and no majority of ranks is equal"));
  if (group_->rank() == vote->majority[0]) LOG(WARNING) << text << "; it gets the state of the other ranks";
  const internal::Healing healing = {vote->majority, vote->outvoted, progress()};
  if (absl::c_linear_search(vote->outvoted, group_->rank())) commits_ = internal::kNoState;
  return StatusOf("World", [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Take(healing));
    return shards_->empty() ? absl::OkStatus() : shards_->Divide(*group_, healing_->nodes);
  });
}

absl::Status World::Apply(const std::function<void()>& apply) {
  const absl::Status applied = TorchStatus("World::Commit", apply);
  is_final_ = !applied.ok();  // the step may be applied in part
  return applied;
}

void World::CountStep() {
  part_ = StepPart::kNothing;
  watch_.reset();
  ++commits_;
  kept_->Remember();
  link_->ReportStep(commits_);
}

absl::Status World::Commit(const std::function<void()>& apply) {
  if (!group_ || met_) {
    return absl::FailedPreconditionError("World::Commit: called outside of Run(), or after it has returned an error");
  }
  if (options_.refuse_non_finite) LOCKSTEP_RETURN_IF_ERROR(RefuseNonFinite());
  LOCKSTEP_RETURN_IF_ERROR(comm::internal::BroadcastCoalesced(*group_, kept_->buffers()));
  // When a rank dies, what is under way on a GPU ends with undefined results.
  for (const c10::Device& device : gpus_) LOCKSTEP_RETURN_IF_ERROR(group_->Synchronize(device));
  LOCKSTEP_RETURN_IF_ERROR(shards_->empty() ? Apply(apply)
                                            : StatusOf("World::Commit", [&] { return StepShards(apply); }));
  CountStep();
  const bool compares = options_.check_every > 0 && commits_ % options_.check_every == 0 && group_->size() > 1;
  if (compares) LOCKSTEP_RETURN_IF_ERROR(CompareParameters());
  return commits_ < next_check_ ? absl::OkStatus() : AgreeToGoOn();
}

// All ranks call it after the same step: at the one that rank 0 has named in the check before.
absl::Status World::AgreeToGoOn() {
  const absl::Time now = absl::Now();
  const absl::Duration step = (now - last_check_time_) / (commits_ - last_check_);
  const double steps = absl::FDivDuration(options_.check_interval, std::max(step, absl::Nanoseconds(1)));
  const int64_t pause = std::clamp<int64_t>(static_cast<int64_t>(steps), 1, kMostStepsBetweenChecks);
  const at::Tensor word = at::empty({2}, at::kLong);
  word[0] = watcher_->regroups_after_step() ? 1 : 0;
  word[1] = group_->rank() == 0 ? pause : 0;
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(word, comm::ReduceOp::kMax));
  last_check_ = commits_;
  last_check_time_ = now;
  next_check_ = commits_ + word[1].item<int64_t>();
  regroups_ = word[0].item<int64_t>() != 0;
  return regroups_ ? absl::AbortedError("World: the ranks regroup, since another one has come") : absl::OkStatus();
}

}  // namespace lockstep::elastic
