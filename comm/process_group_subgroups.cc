// ProcessGroup's sub-groups.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/comm/internal/dispatch.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/internal/group_factory.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {
namespace {

absl::Status CheckRanks(const std::vector<int>& sorted, int size) {
  if (sorted.empty()) return absl::InvalidArgumentError("expected one rank or more, found none");
  for (const int rank : sorted) LOCKSTEP_RETURN_IF_ERROR(internal::CheckRank(rank, "rank", size));
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", *twice, " is named twice"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::NewGroup(std::vector<int> ranks, std::string name) {
  if (state_->failed()) return state_->failure();
  const int64_t number = groups_.fetch_add(1);
  if (name.empty()) name = absl::StrCat("group ", number);
  const std::string who =
      absl::StrCat("rank ", rank_, ": new_group \"", name, "\" of ranks ", absl::StrJoin(ranks, ", "));
  std::sort(ranks.begin(), ranks.end());
  const absl::Status valid = CheckRanks(ranks, size_);
  if (!valid.ok()) return Annotate(valid, who);
  if (!factory_) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, ": this group's backends were made elsewhere; make the sub-group's there too"));
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  internal::NewGroupOptions options;
  options.name = std::move(name);
  options.number = number + 1;  // 0: the world's own
  options.rank = static_cast<int>(own - ranks.begin());
  for (const int rank : ranks) options.world_ranks.push_back(world_ranks_[rank]);
  // The key contains the first rank, because disjoint sets of ranks may create groups with the same number, as
  // NewGroupByHost() does.
  options.store = internal::Prefixed(store_, absl::StrCat("group/", number, "/", ranks[0]));
  options.backend_store = internal::Prefixed(options.store, "backend");
  auto group = factory_->Make(std::move(options));
  if (!group.ok()) return Annotate(group.status(), who);
  return group;
}

absl::StatusOr<std::vector<std::pair<std::string, std::vector<int>>>> internal::GroupAccess::RanksByHost(
    const ProcessGroup& group) {
  if (!group.factory_ || group.factory_->ranks.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", group.rank_, ": the hosts of the ranks are unknown"));
  }
  std::vector<std::pair<std::string, std::vector<int>>> hosts;
  const auto identity = [&](int rank) -> const RankIdentity& {
    return group.factory_->ranks[group.world_ranks_[rank]];
  };
  for (int rank = 0; rank < group.size_; ++rank) {
    auto host = std::find_if(hosts.begin(), hosts.end(),
                             [&](const auto& other) { return OnOneHost(identity(other.second[0]), identity(rank)); });
    if (host == hosts.end()) host = hosts.insert(host, {identity(rank).host, {}});
    host->second.push_back(rank);
  }
  return hosts;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::NewGroupByHost() {
  auto hosts = internal::GroupAccess::RanksByHost(*this);
  if (!hosts.ok()) return Annotate(hosts.status(), "new_group_by_host");
  const auto own = std::find_if(hosts->begin(), hosts->end(), [&](const auto& host) {
    return std::binary_search(host.second.begin(), host.second.end(), rank_);
  });
  return NewGroup(std::move(own->second), absl::StrCat("host ", own->first));
}

}  // namespace lockstep::comm
