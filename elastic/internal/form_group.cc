#include "lockstep/elastic/internal/form_group.h"

#include <stdlib.h>

#include <algorithm>

#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::elastic::internal {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

// A socket for the store of a process that is by itself.
absl::Status ListenAlone(comm::RankEnvironment* environment) {
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(kLoopback, /*port=*/0, {.blocks = true}));
  environment->rank = 0;
  environment->world_size = 1;
  environment->master_addr = kLoopback;
  environment->master_port = BoundAddress(listener.get()).port();
  environment->master_listen_fd = listener.Release();
  return absl::OkStatus();
}

}  // namespace

comm::RankEnvironment EnvironmentOf(launch::RankGeneration& generation) {
  comm::RankEnvironment environment;
  environment.launcher = "launch";
  environment.rank = generation.rank;
  environment.world_size = generation.world_size;
  environment.local_rank = generation.local_rank;
  environment.local_world_size = generation.local_world_size;
  environment.node_rank = generation.node_rank;
  environment.master_addr = generation.master_addr;
  environment.master_port = generation.master_port;
  // A part of the key of the group's secret, so that no two generations have the same one.
  environment.restart_count = static_cast<int>(generation.number);
  environment.master_listen_fd = generation.listen_fd.Release();
  environment.hosts_are_up = generation.regroups;
  return environment;
}

absl::StatusOr<FixedGeneration> ReadFixedGeneration(const comm::EnvironmentLookup& lookup,
                                                    const comm::ExplicitRank& explicit_rank) {
  FixedGeneration fixed;
  LOCKSTEP_ASSIGN_OR_RETURN(fixed.environment, comm::ReadRankEnvironment(lookup, explicit_rank));
  comm::RankEnvironment& environment = fixed.environment;
  if (!environment.rank && !environment.world_size) LOCKSTEP_RETURN_IF_ERROR(ListenAlone(&environment));
  launch::RankGeneration& generation = fixed.generation;
  generation.number = 1;
  generation.regroups = false;
  generation.rank = environment.rank.value_or(0);
  generation.world_size = environment.world_size.value_or(1);
  generation.local_rank = environment.local_rank;
  generation.local_world_size = environment.local_world_size;
  generation.node_rank = environment.node_rank.value_or(0);
  generation.nnodes = (generation.world_size - 1) / std::max(generation.local_world_size, 1) + 1;
  generation.master_addr = environment.master_addr;
  generation.master_port = environment.master_port;
  return fixed;
}

absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> FormGroup(comm::InitOptions options, int64_t number) {
  // The line about the backend is of interest once.
  if (number > 1 && !getenv("TORCH_DISTRIBUTED_DEBUG")) options.debug = comm::Debug::kOff;
  return comm::InitProcessGroup(options);
}

}  // namespace lockstep::elastic::internal
