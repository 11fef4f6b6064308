#include "lockstep/elastic/internal/generation.h"

#include <utility>

#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/silent_hosts.h"
#include "lockstep/comm/watch/watch.h"
#include "lockstep/elastic/internal/form_group.h"
#include "lockstep/elastic/internal/healing.h"

namespace lockstep::elastic::internal {
namespace {

// How much later than its consequences the death of a rank may be known.
constexpr absl::Duration kCausePatience = absl::Seconds(2);

bool IsAboutOthers(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

Generation::Generation(launch::AgentLink* link, const launch::RankGeneration& place, comm::InitOptions options)
    : link_(link), has_other_hosts_(place.nnodes > 1), options_(std::move(options)) {
  facts.number = place.number;
  facts.rank = place.rank;
  facts.world_size = place.world_size;
}

absl::Status Generation::Meet(const Progress& progress, const KeptState& kept) {
  if (has_other_hosts_) comm::internal::ForgetSilentHosts();
  // The launcher is heard while the group forms too: a rank may die then.
  if (link_) {
    LOCKSTEP_ASSIGN_OR_RETURN(watcher_, LinkWatcher::Start(link_));
    options_.interruption = watcher_->interruption();
    options_.on_stall = [link = link_](const comm::Stall& stall) { link->ReportStall(stall.text, stall.rank); };
  }
  LOCKSTEP_ASSIGN_OR_RETURN(group_, FormGroup(options_, facts.number));
  if (watcher_) watcher_->Guard(group_.get());
  LOCKSTEP_ASSIGN_OR_RETURN(healing_, AgreeOnHealing(*group_, progress, kept));
  return absl::OkStatus();
}

void Generation::BeginTraining(const KeptState& kept, int64_t commits, bool watches_gradients) {
  pace_.emplace(commits, absl::Now());
  gpus_ = kept.gpus();
  if (watches_gradients) gradients_ = std::make_unique<GradientWatch>(kept.parameters());
  facts.trains = true;
}

bool Generation::OthersFailed(const absl::Status& status) const {
  absl::Status failure = group_ ? group_->failure() : status;
  // The connection to the store closes before the group knows that the rank that served it has died.
  const absl::Time until = absl::Now() + kCausePatience;
  while (failure.ok() && IsAboutOthers(status) && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(1));
    failure = group_->failure();
  }
  return IsAboutOthers(failure);
}

std::vector<std::string> Generation::TakeSilentHosts() const {
  return has_other_hosts_ ? comm::internal::TakeSilentHosts() : std::vector<std::string>();
}

void Generation::Abort(const absl::Status& status) {
  if (group_) group_->Abort(status);
}

std::unique_ptr<comm::ProcessGroup> Generation::Leave() {
  watcher_.reset();
  return std::move(group_);
}

}  // namespace lockstep::elastic::internal
