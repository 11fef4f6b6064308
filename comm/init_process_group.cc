#include "lockstep/comm/init_process_group.h"

#include <errno.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/internal/group_factory.h"
#include "lockstep/comm/internal/group_state.h"
#include "lockstep/comm/rendezvous/meeting.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/comm/secret/sealed_store.h"
#include "lockstep/launch/report/report.h"

namespace lockstep::comm {
namespace {

absl::StatusOr<int> Resolve(int option, const std::optional<int>& variable, absl::string_view option_name,
                            absl::string_view variable_name) {
  if (option >= 0) return option;
  if (option != -1) return absl::InvalidArgumentError(absl::StrCat(option_name, " is ", option));
  if (variable) return *variable;
  return absl::InvalidArgumentError(absl::StrCat(
      "neither InitOptions::", option_name, " nor environment variable ", variable_name,
      " is set; a launcher sets RANK and WORLD_SIZE: launch --nproc_per_node=2 ", program_invocation_short_name));
}

absl::StatusOr<RankEnvironment> EnvironmentOf(const InitOptions& options) {
  if (const auto& given = options.environment) {
    if (given->rank.value_or(0) >= 0 && given->world_size.value_or(1) >= 1) return *given;
    return absl::InvalidArgumentError(absl::StrCat("InitOptions::environment has rank ", given->rank.value_or(0),
                                                   " of ", given->world_size.value_or(1)));
  }
  return ReadRankEnvironment(ProcessEnvironment, {options.rank, options.world_size});
}

absl::StatusOr<Debug> ResolveDebug(Debug option) {
  if (option != Debug::kFromEnvironment) return option;
  const std::string value = ProcessEnvironment("TORCH_DISTRIBUTED_DEBUG").value_or("");
  const std::string upper = absl::AsciiStrToUpper(value);
  if (upper.empty()) return Debug::kFromEnvironment;
  if (upper == "OFF") return Debug::kOff;
  if (upper == "INFO") return Debug::kInfo;
  if (upper == "DETAIL") return Debug::kDetail;
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable TORCH_DISTRIBUTED_DEBUG=", value, ": expected OFF, INFO or DETAIL"));
}

// The backends of this program that a rank has not linked, or that Python lacks if a rank is Python's.
UnavailableBackends Unavailable(const Met& met) {
  UnavailableBackends unavailable;
  for (const std::string& name : LinkedBackends()) {
    if (!met.all_lockstep && name != "gloo" && name != "nccl") unavailable[name] = "a rank runs Python PyTorch";
    for (size_t rank = 0; rank < met.facts.size(); ++rank) {
      if (rank > 0 && met.facts[rank] == met.facts[rank - 1]) continue;
      const std::vector<std::string> theirs = absl::StrSplit(met.facts[rank], ',');
      if (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) continue;
      unavailable.emplace(name, absl::StrCat("rank ", rank, " has not linked it"));
    }
  }
  return unavailable;
}

// The secret of the meeting alone. It contains the restart count, since a restart by torchrun finds the keys of the
// previous attempts.
std::optional<JobSecret> MeetingSecret(const std::optional<JobSecret>& secret, const RankEnvironment& environment) {
  if (!secret) return secret;
  return secret->Derive(absl::StrCat("meeting ", environment.restart_count));
}

// Once the ranks have met, values that an earlier run sealed with the same secret are invalid. Python ranks cannot seal
// or open values.
c10::intrusive_ptr<c10d::Store> StoreOf(const Met& met, const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::optional<JobSecret>& secret, int rank) {
  if (!secret) return store;
  if (met.all_lockstep) return Sealed(store, secret->Derive(absl::StrCat("run ", met.occasion)));
  LOG(WARNING) << "rank " << rank << ": a Python rank is in the group, so nothing in the store is protected by "
               << kJobSecretVariable;
  return store;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeWorld(const RendezvousOptions& options,
                                                        const std::shared_ptr<internal::GroupFactory>& factory,
                                                        bool announce) {
  const absl::Time deadline = absl::Now() + options.timeout;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<JobSecret> secret, ReadJobSecret());
  LOCKSTEP_ASSIGN_OR_RETURN(Rendezvous rendezvous, OpenStore(options));
  LOCKSTEP_ASSIGN_OR_RETURN(
      Met met, MeetAllRanks(Sealed(rendezvous.store, MeetingSecret(secret, options.environment)), options.rank,
                            options.world_size, absl::StrJoin(LinkedBackends(), ","), deadline, options.waiting,
                            options.interruption));
  factory->store = StoreOf(met, rendezvous.store, secret, options.rank);
  factory->server = rendezvous.server;
  factory->master_addr = rendezvous.master_addr;
  factory->unavailable = Unavailable(met);
  factory->ranks = std::move(met.ranks);
  internal::NewGroupOptions world;
  world.name = "world";
  world.rank = options.rank;
  world.announce = announce;
  for (int rank = 0; rank < options.world_size; ++rank) world.world_ranks.push_back(rank);
  world.store = internal::Prefixed(factory->store, "lockstep/group");
  // Python's nesting, so that a rank can meet Python ranks: process group "0" of the default group.
  world.backend_store = internal::Prefixed(internal::Prefixed(factory->store, "default_pg"), "0/");
  return factory->Make(std::move(world));
}

// About as many as the group keeps open besides its watch: at rank 0 for each rank a connection of the store and one of
// Gloo; at other ranks only Gloo's.
int DescriptorsOf(int rank, int world_size) {
  constexpr int kForItself = 64;
  return (rank == 0 ? 2 : 1) * world_size + kForItself;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> Init(const InitOptions& options, const RendezvousOptions& rendezvous) {
  if (rendezvous.rank >= rendezvous.world_size) {
    return absl::InvalidArgumentError("the rank is not below the world size");
  }
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("timeout is ", absl::FormatDuration(options.timeout)));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Debug debug, ResolveDebug(options.debug));
  MakeRoomForDescriptors(DescriptorsOf(rendezvous.rank, rendezvous.world_size));
  auto factory = std::make_shared<internal::GroupFactory>();
  LOCKSTEP_ASSIGN_OR_RETURN(factory->candidates, ParseBackendSpec(options.backend));
  factory->timeout = options.timeout;
  factory->interruption = options.interruption;
  factory->stall_after = options.stall_after;
  factory->on_stall = options.on_stall;
  factory->info = debug == Debug::kInfo || debug == Debug::kDetail;
  factory->detail = debug == Debug::kDetail;
  factory->report_uncaught_exceptions = options.report_uncaught_exceptions;
  return MakeWorld(rendezvous, factory, /*announce=*/debug == Debug::kFromEnvironment);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(const InitOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const RankEnvironment environment, EnvironmentOf(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const int rank, Resolve(options.rank, environment.rank, "rank", "RANK"));
  LOCKSTEP_ASSIGN_OR_RETURN(const int world_size,
                            Resolve(options.world_size, environment.world_size, "world_size", "WORLD_SIZE"));
  const auto waiting =
      std::make_shared<WaitingNotice>(WaitingNoticeOptions{absl::StrCat("rank ", rank), options.timeout});
  auto group = Init(
      options, {options.init_method, rank, world_size, options.timeout, environment, waiting, options.interruption});
  if (!group.ok()) return Annotate(group.status(), absl::StrCat("rank ", rank, " of ", world_size));
  if (!internal::GroupState::AnyFailed()) launch::ForgetFailuresOfOtherRanks();
  return group;
}

}  // namespace lockstep::comm
