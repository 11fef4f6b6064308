#include "lockstep/elastic/internal/form_group.h"

#include <stdlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::elastic::internal {
namespace {

void Set(const char* name, absl::string_view value) { setenv(name, std::string(value).c_str(), /*overwrite=*/1); }
void Set(const char* name, int64_t value) { Set(name, absl::StrCat(value)); }

}  // namespace

absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> FormGroup(const launch::RankGeneration& generation,
                                                              const std::string& backend, absl::Duration timeout,
                                                              const std::function<absl::Status()>& interruption,
                                                              const std::function<void(const comm::Stall&)>& on_stall) {
  Set("RANK", generation.rank);
  Set("WORLD_SIZE", generation.world_size);
  // On one node its ranks are numbered without gaps. generation.local_rank has gaps where ranks have died, and must be
  // below LOCAL_WORLD_SIZE all the same.
  const int local_rank = generation.nnodes == 1 ? generation.rank : generation.local_rank;
  Set("LOCAL_RANK", local_rank);
  Set("LOCAL_WORLD_SIZE", std::max(generation.local_world_size, local_rank + 1));
  Set("GROUP_RANK", generation.node_rank);
  Set("MASTER_ADDR", generation.master_addr);
  Set("MASTER_PORT", generation.master_port);
  // A part of the key of the group's secret, so that no two generations have the same one.
  Set("TORCHELASTIC_RESTART_COUNT", generation.number);
  if (generation.listen_fd >= 0) {
    Set("LOCKSTEP_MASTER_LISTEN_FD", generation.listen_fd);
  } else {
    unsetenv("LOCKSTEP_MASTER_LISTEN_FD");
  }
  comm::InitOptions options;
  options.backend = backend;
  options.timeout = timeout;
  options.interruption = interruption;
  options.on_stall = on_stall;
  // The line about the backend is of interest once.
  if (generation.number > 1 && !getenv("TORCH_DISTRIBUTED_DEBUG")) options.debug = comm::Debug::kOff;
  auto group = comm::InitProcessGroup(options);
  unsetenv("LOCKSTEP_MASTER_LISTEN_FD");
  return group;
}

}  // namespace lockstep::elastic::internal
