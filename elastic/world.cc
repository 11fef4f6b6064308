#include "lockstep/elastic/world.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/elastic/internal/form_group.h"
#include "lockstep/elastic/internal/generation.h"
#include "lockstep/elastic/internal/healing.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/parameter_check.h"
#include "lockstep/elastic/internal/rank_steps.h"
#include "lockstep/elastic/internal/shards.h"

namespace lockstep::elastic {

using internal::Departure;
using launch::StepFailure;

namespace {

// While there are fewer than min_ranks.
constexpr absl::Duration kPauseOfWaiting = absl::Milliseconds(10);

constexpr char kResumable[] = "lockstep.elastic.resumable";

// The status of f(), which may throw.
template <typename F>
absl::Status StatusOf(const std::string& who, const F& f) {
  absl::Status status;
  const absl::Status thrown = TorchStatus(who, [&] { status = f(); });
  return thrown.ok() ? status : thrown;
}

launch::JoinOptions JoinOptionsOf(const Options& options) {
  launch::JoinOptions join;
  join.max_ranks = options.max_ranks;
  join.leave_timeout = options.leave_timeout;
  // While a new process waits, the others may need their timeout to find that a rank is stuck, and it its time to
  // leave.
  join.timeout = options.timeout + options.leave_timeout;
  return join;
}

}  // namespace

World::World(const Options& options, std::unique_ptr<launch::AgentLink> link)
    : options_(options),
      link_(std::move(link)),
      kept_(std::make_unique<internal::KeptState>()),
      shards_(std::make_unique<internal::Shards>()),
      steps_(std::make_unique<internal::RankSteps>(options.failures_per_cause, options.failure_window)),
      join_(JoinOptionsOf(options)) {}

World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Join(const Options& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  static std::atomic<bool> joined = false;
  if (joined.exchange(true)) return absl::FailedPreconditionError("World::Join: this process has called it before");
  if (!options.regroups || !launch::AgentLink::IsOffered()) {
    return std::unique_ptr<World>(new World(options, nullptr));
  }
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

int64_t World::commits() const { return steps_->commits(); }

comm::ProcessGroup& World::group() const { return present_->group(); }

absl::Status World::BeginAt(int64_t step) {
  if (step < 0)
    return absl::InvalidArgumentError(absl::StrCat("World::BeginAt: expected a step of at least 0, found ", step));
  if (commits() > 0)
    return absl::FailedPreconditionError(absl::StrCat("World::BeginAt: ", commits(), " steps are committed already"));
  steps_->BeginAt(step);
  return absl::OkStatus();
}

absl::Status World::Run(const std::function<absl::Status(comm::ProcessGroup* group)>& train) {
  if (kept_->empty()) return absl::InvalidArgumentError("World::Run: nothing is kept: call Keep() before");
  LOCKSTEP_RETURN_IF_ERROR(CheckModels());
  KeepHistory();
  kept_->Remember();
  end_ = JoinAndMeet();
  while (!end_) {
    const absl::Status status = HealAndTrain(train);
    if (IsInTraining()) {
      end_ = Leave(status);
      if (!end_) end_ = JoinAndMeet();
    }
    left_group_.reset();
  }
  return *end_;
}

// Joins generations until the ranks of one have met. Otherwise the result is for Run().
std::optional<absl::Status> World::JoinAndMeet() {
  for (;;) {
    const absl::Status joined = JoinGeneration();
    if (!joined.ok()) return joined;
    const absl::Status met = present_->Meet(steps_->progress(generation_.node_rank), *kept_);
    if (met.ok()) return std::nullopt;
    if (std::optional<absl::Status> end = Leave(met)) return end;
  }
}

absl::Status World::JoinGeneration() {
  if (generation_.number > 0 && !is_elastic()) {
    return absl::FailedPreconditionError(
        absl::StrCat("World::Run: the ranks have left their group, and form no other one, since ",
                     !options_.regroups ? "Options::regroups is false"
                     : link_            ? "the launchers meet by a static rendezvous"
                                        : "Lockstep's launch has not started them"));
  }
  comm::InitOptions group;
  group.backend = options_.backend;
  group.timeout = options_.timeout;
  if (link_) {
    LOCKSTEP_ASSIGN_OR_RETURN(generation_, link_->Join(join_));
    group.environment = internal::EnvironmentOf(generation_);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(internal::FixedGeneration fixed,
                              internal::ReadFixedGeneration(comm::ProcessEnvironment, options_.explicit_rank));
    generation_ = std::move(fixed.generation);
    group.environment = std::move(fixed.environment);
    group.init_method = options_.init_method;
  }
  present_ = std::make_unique<internal::Generation>(link_.get(), generation_, std::move(group));
  present_->facts.is_final = !is_elastic();
  steps_->OnJoin(present_->facts, generation_.failure);
  return absl::OkStatus();
}

// After `status` of the generation. nullopt: this rank joins the next one. Otherwise Run() must return the status.
// `keeps_group`: in left_group_.
std::optional<absl::Status> World::Leave(const absl::Status& status, bool keeps_group) {
  internal::GenerationFacts& facts = present_->facts;
  const bool is_unfit = internal::IsUnfit(status);
  facts.is_final |= is_unfit;
  if (const auto error = comm::AgreedErrorOf(status)) facts.heard = StepFailure{-1, error->rank, error->message};
  // Before connections close, and before others are waited for.
  join_.silent_hosts.clear();
  if (is_elastic() && !status.ok() && !facts.regroups) join_.silent_hosts = present_->TakeSilentHosts();
  const bool others_failed =
      steps_->NeedsCause(facts, status) && (internal::IsWithUnfit(status) || present_->OthersFailed(status));
  const Departure departure = steps_->OnEnd(facts, status, others_failed);
  join_.reason = departure.reason;
  join_.failure = departure.failure;
  if (departure.failure) present_->Abort(absl::AbortedError(departure.reason));
  // Nobody forms another generation, so the other ranks get this rank's error.
  if (!is_elastic() && !status.ok()) present_->Abort(status);
  std::unique_ptr<comm::ProcessGroup> group = present_->Leave();
  if (is_unfit && is_elastic()) link_->ReportUnfit();
  // First of all, since this process may be killed at any time. After the barrier, or the word to give up, all have
  // done their work.
  const bool is_done = departure.kind == Departure::Kind::kEnd && (status.ok() || IsResumable(status));
  if (is_done && link_) link_->Finish(/*all_have=*/true);
  if (keeps_group) left_group_ = std::move(group);
  group.reset();
  present_.reset();
  if (departure.kind == Departure::Kind::kEndJob) {
    link_->EndJob(departure.reason);
    return steps_->failures().Verdict() ? absl::AbortedError(absl::StrCat("World: ", departure.reason)) : status;
  }
  if (departure.kind == Departure::Kind::kEnd) {
    if (departure.failure) link_->ReportFailure(*departure.failure);
    return departure.reason.empty() ? status : absl::Status(status.code(), departure.reason);
  }
  if (departure.takes_back) kept_->TakeBack();
  return std::nullopt;
}

absl::Status World::HealAndTrain(const std::function<absl::Status(comm::ProcessGroup* group)>& train) {
  LOCKSTEP_RETURN_IF_ERROR(StatusOf("World", [this] { return Heal(); }));
  if (steps_->failures().Verdict()) return absl::AbortedError("World: the job ends");
  LOCKSTEP_RETURN_IF_ERROR(StatusOf("World", [this] { return AwaitRanks(); }));
  present_->BeginTraining(*kept_, commits(), options_.refuse_non_finite && steps_->IsRepeated());
  LOCKSTEP_RETURN_IF_ERROR(StatusOf("", [&] { return train(&group()); }));
  return IsInTraining() ? group().Barrier() : absl::OkStatus();
}

absl::Status World::Heal() {
  const internal::Healing& healing = present_->healing();
  if (healing.spreads) LOCKSTEP_RETURN_IF_ERROR(CompleteStep());
  LOCKSTEP_RETURN_IF_ERROR(Take(healing));
  if (shards_->empty()) return absl::OkStatus();
  if (healing.newest == 0) shards_->HaveAll();
  steps_->OnDivided();
  LOCKSTEP_RETURN_IF_ERROR(shards_->Divide(group(), healing.nodes));
  return shards_->has_models() ? CheckShards() : absl::OkStatus();  // without all pieces nothing can be wrapped
}

absl::Status World::Take(const internal::Healing& healing) {
  if (healing.receivers.empty()) return absl::OkStatus();
  const bool in_place = steps_->HealsInPlace(healing, group().rank());
  LOCKSTEP_RETURN_IF_ERROR(internal::Heal(group(), healing, in_place, kept_.get()));
  if (!healing.IsReceiver(group().rank())) return absl::OkStatus();
  steps_->OnHealed(healing);
  shards_->HaveNone();
  kept_->Remember();
  return absl::OkStatus();
}

// Until there are min_ranks. Rank 0 decides, as the ranks' clocks differ.
absl::Status World::AwaitRanks() {
  const int ranks = group().size();
  if (ranks >= options_.min_ranks) {
    waits_until_ = absl::InfiniteFuture();
    return absl::OkStatus();
  }
  if (generation_.number == 1) {
    present_->facts.is_final = true;  // a later generation would wait
    return absl::InvalidArgumentError(
        absl::StrCat("World: min_ranks is ", options_.min_ranks, ", but the launcher has started ", ranks, " ranks"));
  }
  waits_until_ = std::min(waits_until_, absl::Now() + options_.wait_for_ranks);
  enum Word : int64_t { kWait, kRegroup, kGiveUp };
  const at::Tensor word = at::full({1}, kWait, at::kLong);
  while (word.item<int64_t>() == kWait) {
    absl::SleepFor(kPauseOfWaiting);
    word.fill_(present_->RegroupsAfterStep() ? kRegroup : absl::Now() < waits_until_ ? kWait : kGiveUp);
    LOCKSTEP_RETURN_IF_ERROR(group().Broadcast(word, 0));
  }
  if (word.item<int64_t>() == kRegroup) {
    present_->facts.regroups = true;
    return absl::AbortedError("World: the ranks regroup, since another one has come");
  }
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("World: ", ranks, " of at least ", options_.min_ranks, " ranks were there for ",
                   absl::FormatDuration(options_.wait_for_ranks), "; ", steps_->step(), " steps are complete"));
  status.SetPayload(kResumable, absl::Cord());
  LOCKSTEP_RETURN_IF_ERROR(GatherShards());
  present_->facts.is_final = true;
  return status;
}

bool World::IsResumable(const absl::Status& status) { return status.GetPayload(kResumable).has_value(); }

absl::Status World::RefuseNonFinite() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto found,
                            internal::FindNonFinite(group(), kept_->parameters(), present_->NonFiniteGradient()));
  if (!found) return absl::OkStatus();
  present_->facts.culprit = found->rank;
  return absl::DataLossError(found->what);
}

absl::Status World::CompareParameters() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto vote, internal::CompareParameters(group(), kept_->parameters()));
  if (!vote) return absl::OkStatus();
  const std::string text = absl::StrCat("World: after step ", steps_->step() - 1, " ", vote->difference);
  present_->facts.is_final |= vote->majority.empty();
  if (vote->majority.empty()) return absl::DataLossError(absl::StrCat(text, ", and no majority of ranks is equal"));
  const int rank = group().rank();
  if (rank == vote->majority[0]) LOG(WARNING) << text << "; it gets the state of the other ranks";
  const internal::Healing healing = {vote->majority, vote->outvoted, steps_->progress(0).commits};
  if (healing.IsReceiver(rank)) steps_->GiveUpState();
  return StatusOf("World", [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Take(healing));
    return shards_->empty() ? absl::OkStatus() : shards_->Divide(group(), present_->healing().nodes);
  });
}

absl::Status World::Apply(const std::function<void()>& apply) {
  const absl::Status applied = TorchStatus("World::Commit", apply);
  present_->facts.is_final |= !applied.ok();  // the step may be applied in part
  return applied;
}

void World::CountStep() {
  present_->StopWatchingGradients();
  steps_->OnCommit();
  kept_->Remember();
  if (link_) link_->ReportStep(steps_->step());
}

absl::Status World::Commit(const std::function<void()>& apply) {
  if (!IsInTraining()) {
    return absl::FailedPreconditionError("World::Commit: called outside of Run(), or after it has returned an error");
  }
  if (options_.refuse_non_finite) LOCKSTEP_RETURN_IF_ERROR(RefuseNonFinite());
  LOCKSTEP_RETURN_IF_ERROR(comm::internal::BroadcastCoalesced(group(), kept_->buffers()));
  // When a rank dies, what is under way on a GPU ends with undefined results.
  for (const c10::Device& device : present_->gpus()) LOCKSTEP_RETURN_IF_ERROR(group().Synchronize(device));
  LOCKSTEP_RETURN_IF_ERROR(shards_->empty() ? Apply(apply)
                                            : StatusOf("World::Commit", [&] { return StepShards(apply); }));
  CountStep();
  const bool compares = options_.check_every > 0 && commits() % options_.check_every == 0 && group().size() > 1;
  if (compares) LOCKSTEP_RETURN_IF_ERROR(CompareParameters());
  return is_elastic() && present_->pace().IsDue(commits()) ? AgreeToGoOn() : absl::OkStatus();
}

// All ranks call it after the same step: at the one that rank 0 has named in the check before.
absl::Status World::AgreeToGoOn() {
  const absl::Time now = absl::Now();
  const at::Tensor word = at::empty({2}, at::kLong);
  word[0] = present_->RegroupsAfterStep() ? 1 : 0;
  word[1] = group().rank() == 0 ? present_->pace().Pause(commits(), options_.check_interval, now) : 0;
  LOCKSTEP_RETURN_IF_ERROR(group().AllReduce(word, comm::ReduceOp::kMax));
  present_->pace().OnCheck(commits(), word[1].item<int64_t>(), now);
  present_->facts.regroups = word[0].item<int64_t>() != 0;
  return present_->facts.regroups ? absl::AbortedError("World: the ranks regroup, since another one has come")
                                  : absl::OkStatus();
}

}  // namespace lockstep::elastic
