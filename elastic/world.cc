#include "lockstep/elastic/world.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/elastic/internal/form_group.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/link_watcher.h"

namespace lockstep::elastic {

using checkpoint::Value;
using internal::KeptThing;

namespace {

// The most steps between two checks, if steps are much faster than Options::check_interval.
constexpr int64_t kMostStepsBetweenChecks = 1000;

// How much later than its consequences the death of a rank may be known.
constexpr absl::Duration kCausePatience = absl::Seconds(2);

bool IsAboutOthers(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
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
    : options_(options), link_(std::move(link)), kept_(std::make_unique<internal::KeptState>()) {}

World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Join(const Options& options) {
  if (options.min_ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("World: min_ranks must be at least 1, but is ", options.min_ranks));
  }
  absl::StatusOr<std::unique_ptr<launch::AgentLink>> link = launch::AgentLink::Open();
  if (!link.ok()) return Annotate(link.status(), "World::Join");
  return std::unique_ptr<World>(new World(options, *std::move(link)));
}

absl::Status World::Keep(const std::string& name, torch::nn::Module& module) {
  KeptThing thing;
  thing.save = [&module]() -> absl::StatusOr<Value> { return checkpoint::StateDict(module); };
  thing.load = [&module](const Value& value) { return checkpoint::LoadStateDict(module, value); };
  RememberBuffers(module, &thing);
  thing.buffers = module.buffers();
  return kept_->Add(name, std::move(thing));
}

absl::Status World::Keep(const std::string& name, torch::optim::Optimizer& optimizer) {
  KeptThing thing;
  thing.save = [&optimizer] { return checkpoint::OptimizerStateDict(optimizer); };
  thing.load = [&optimizer](const Value& value) { return checkpoint::LoadOptimizerStateDict(optimizer, value); };
  return kept_->Add(name, std::move(thing));
}

absl::Status World::KeepBytes(const std::string& name, void* data, size_t size) {
  const auto copy = std::make_shared<std::string>(static_cast<const char*>(data), size);
  KeptThing thing;
  thing.save = [data, size]() -> absl::StatusOr<Value> {
    return Value::Bytes(absl::string_view(static_cast<const char*>(data), size));
  };
  thing.load = [data, size](const Value& value) -> absl::Status {
    if (!value.is_bytes() || value.bytes_value().size() != size) {
      return absl::InvalidArgumentError(absl::StrCat("expected the ", size, " bytes of a variable, found ",
                                                     value.is_bytes() ? value.bytes_value().size() : 0));
    }
    memcpy(data, value.bytes_value().data(), size);
    return absl::OkStatus();
  };
  thing.remember = [copy, data, size] { memcpy(copy->data(), data, size); };
  thing.take_back = [copy, data, size] { memcpy(data, copy->data(), size); };
  return kept_->Add(name, std::move(thing));
}

absl::Status World::Keep(const std::string& name, std::function<absl::StatusOr<Value>()> save,
                         std::function<absl::Status(const Value& value)> load) {
  KeptThing thing;
  thing.save = std::move(save);
  thing.load = std::move(load);
  return kept_->Add(name, std::move(thing));
}

absl::Status World::Run(const std::function<absl::Status(comm::ProcessGroup* group)>& train) {
  launch::JoinOptions join;
  join.min_ranks = options_.min_ranks;
  join.leave_timeout = options_.leave_timeout;
  join.timeout = options_.timeout;
  kept_->Remember();
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(generation_, link_->Join(join));
    regroups_ = false;
    const absl::Status status = RunOnce(train);
    const bool others_caused = !regroups_ && OthersCaused(status);
    watcher_.reset();
    group_.reset();
    if (status.ok() && !regroups_) {
      link_->Finish();
      return absl::OkStatus();
    }
    if (!regroups_ && !others_caused) return status;
    if (!regroups_) kept_->TakeBack();
    join.reason = regroups_ ? "" : std::string(status.message());
  }
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

absl::Status World::RunOnce(const std::function<absl::Status(comm::ProcessGroup* group)>& train) {
  // The launcher is heard while the group forms too: a rank may die then.
  LOCKSTEP_ASSIGN_OR_RETURN(watcher_, internal::LinkWatcher::Start(link_.get()));
  LOCKSTEP_ASSIGN_OR_RETURN(
      group_, internal::FormGroup(generation_, options_.backend, options_.timeout, watcher_->interruption()));
  watcher_->Guard(group_.get());
  LOCKSTEP_RETURN_IF_ERROR(Heal());
  next_check_ = commits_ + 1;
  last_check_ = commits_;
  last_check_time_ = absl::Now();
  absl::Status status;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { status = train(group_.get()); }));
  LOCKSTEP_RETURN_IF_ERROR(status);
  return group_->Barrier();
}

// Gives everybody the state of a rank with the most completed steps.
absl::Status World::Heal() {
  const at::Tensor mine = at::full({1}, commits_, at::kLong), all = at::empty({group_->size()}, at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group_->AllGatherIntoTensor(all, mine));
  const int64_t newest = all.max().item<int64_t>(), oldest = all.min().item<int64_t>();
  if (newest == oldest) return absl::OkStatus();
  return TakeState(static_cast<int>(all.argmax().item<int64_t>()), newest);
}

absl::Status World::TakeState(int source, int64_t newest) {
  std::string bytes;
  if (group_->rank() == source) {
    LOCKSTEP_ASSIGN_OR_RETURN(bytes, kept_->Serialize());
  }
  const at::Tensor size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(size, source));
  const at::Tensor state = at::empty({size.item<int64_t>()}, at::kByte);
  if (group_->rank() == source) memcpy(state.mutable_data_ptr(), bytes.data(), bytes.size());
  LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(state, source));
  if (commits_ == newest) return absl::OkStatus();
  const absl::string_view received(static_cast<const char*>(state.const_data_ptr()), state.numel());
  LOCKSTEP_RETURN_IF_ERROR(kept_->Deserialize(received));
  commits_ = newest;
  kept_->Remember();
  return absl::OkStatus();
}

absl::Status World::Commit(const std::function<void()>& apply) {
  if (!group_) return absl::FailedPreconditionError("World::Commit: called outside of Run()");
  LOCKSTEP_RETURN_IF_ERROR(comm::internal::BroadcastCoalesced(*group_, kept_->buffers()));
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("World::Commit", apply));
  ++commits_;
  kept_->Remember();
  link_->ReportStep(commits_);
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
