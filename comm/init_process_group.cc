#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rank_environment.h"
#include "lockstep/comm/rendezvous/meeting.h"
#include "lockstep/comm/rendezvous/rendezvous.h"

namespace lockstep::comm {
namespace {

absl::StatusOr<int> Resolve(int option, const absl::optional<int>& variable, absl::string_view option_name,
                            absl::string_view variable_name) {
  if (option >= 0) return option;
  if (option != -1) return absl::InvalidArgumentError(absl::StrCat(option_name, " is ", option));
  if (variable) return *variable;
  return absl::InvalidArgumentError(
      absl::StrCat("neither InitOptions::", option_name, " nor environment variable ", variable_name, " is set"));
}

c10::intrusive_ptr<c10d::Store> Prefixed(const c10::intrusive_ptr<c10d::Store>& store, absl::string_view prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), store);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeGroup(const internal::RendezvousOptions& options,
                                                        const std::map<c10::DeviceType, BackendInfo>& selection) {
  LOCKSTEP_ASSIGN_OR_RETURN(internal::Rendezvous rendezvous, internal::OpenStore(options));
  LOCKSTEP_RETURN_IF_ERROR(
      MeetAllRanks(rendezvous.store, options.rank, options.world_size, /*facts=*/"", absl::Now() + options.timeout)
          .status());
  // Python's nesting, so that a rank can meet Python ranks: process group "0" of the default group, then the device
  // type.
  const auto group_store = Prefixed(Prefixed(rendezvous.store, "default_pg"), "0/");
  std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>> backends;
  for (const auto& entry : selection) {
    BackendContext context;
    context.store = Prefixed(group_store, absl::StrCat(c10::DeviceTypeName(entry.first, /*lower_case=*/true), "/"));
    context.rank = options.rank;
    context.size = options.world_size;
    context.timeout = options.timeout;
    context.master_addr = rendezvous.master_addr;
    LOCKSTEP_ASSIGN_OR_RETURN(backends[entry.first], entry.second.create(context));
  }
  return ProcessGroup::FromBackends(Prefixed(rendezvous.store, "lockstep/group"), rendezvous.server,
                                    std::move(backends));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(const InitOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const RankEnvironment environment, ReadRankEnvironment());
  LOCKSTEP_ASSIGN_OR_RETURN(const int rank, Resolve(options.rank, environment.rank, "rank", "RANK"));
  LOCKSTEP_ASSIGN_OR_RETURN(const int world_size,
                            Resolve(options.world_size, environment.world_size, "world_size", "WORLD_SIZE"));
  const std::string who = absl::StrCat("rank ", rank, " of ", world_size);
  if (rank >= world_size)
    return absl::InvalidArgumentError(absl::StrCat(who, ": the rank is not below the world size"));
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(who, ": timeout is ", absl::FormatDuration(options.timeout)));
  }
  const auto selection = SelectBackends(options.backend);
  if (!selection.ok()) return Annotate(selection.status(), who);
  auto group = MakeGroup({options.init_method, rank, world_size, options.timeout, environment}, *selection);
  if (!group.ok()) return Annotate(group.status(), who);
  return group;
}

}  // namespace lockstep::comm
