#include "lockstep/fsdp/internal/mesh.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::fsdp::internal {
namespace {

using Hosts = std::vector<std::pair<std::string, std::vector<int>>>;

absl::Status CheckEven(const Hosts& hosts) {
  if (std::all_of(hosts.begin(), hosts.end(),
                  [&](const auto& host) { return host.second.size() == hosts[0].second.size(); }))
    return absl::OkStatus();
  std::string found;
  for (const auto& [name, ranks] : hosts) {
    absl::StrAppend(&found, found.empty() ? "" : "; ", ranks.size() == 1 ? "rank " : "ranks ",
                    absl::StrJoin(ranks, ", "), " on host ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("sharding_strategy kHybridShard: expected as many ranks on each host, found ", found));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Mesh>> Mesh::Create(comm::ProcessGroup* group, ShardingStrategy strategy) {
  std::unique_ptr<Mesh> mesh(new Mesh(group));
  Hosts hosts(1);
  hosts[0].second.resize(group->size());
  std::iota(hosts[0].second.begin(), hosts[0].second.end(), 0);
  if (strategy == ShardingStrategy::kHybridShard) {
    LOCKSTEP_ASSIGN_OR_RETURN(hosts, comm::internal::GroupAccess::RanksByHost(*group));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckEven(hosts));
  mesh->at_place_.resize(hosts[0].second.size());
  for (const auto& [name, ranks] : hosts) {
    if (std::binary_search(ranks.begin(), ranks.end(), group->rank())) mesh->own_ = ranks;
    for (size_t place = 0; place < ranks.size(); ++place) mesh->at_place_[place].push_back(ranks[place]);
  }
  for (std::vector<int>& ranks : mesh->at_place_) std::sort(ranks.begin(), ranks.end());
  if (mesh->replicas() == 1) return mesh;
  LOCKSTEP_ASSIGN_OR_RETURN(mesh->own_shard_group_, group->NewGroupByHost());
  const std::vector<int>& same = mesh->at_place_[mesh->place()];
  LOCKSTEP_ASSIGN_OR_RETURN(mesh->replicate_group_, group->NewGroup(same, absl::StrCat("replicas of rank ", same[0])));
  return mesh;
}

int Mesh::RankOf(int replica, int place) const { return at_place_[place][replica]; }

int Mesh::RankAt(int place) const { return own_[place]; }

void Mesh::Abort(const absl::Status& cause) const {
  group_->Abort(cause);
  if (own_shard_group_) own_shard_group_->Abort(cause);
  if (replicate_group_) replicate_group_->Abort(cause);
}

absl::Status Mesh::Spread(const absl::Status& status) const {
  if (!status.ok() && replicas() > 1) Abort(status);
  return status;
}

}  // namespace lockstep::fsdp::internal
