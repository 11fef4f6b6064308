#include "lockstep/launch/flags/check_options.h"

#include <signal.h>

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckNodes(const LaunchOptions& options) {
  if (options.nnodes < 1) return Bad("nnodes must be at least 1, but is ", options.nnodes);
  if (int64_t{options.nnodes} * options.nproc_per_node > std::numeric_limits<int>::max()) {
    return Bad("nnodes = ", options.nnodes, " with ", options.nproc_per_node, " ranks each are more than ",
               std::numeric_limits<int>::max(), " ranks");
  }
  if (options.node_rank < 0 || options.node_rank >= options.nnodes) {
    return Bad("node_rank must be from 0 to nnodes - 1 = ", options.nnodes - 1, ", but is ", options.node_rank);
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    return Bad("master_port must be from 0 to 65535, but is ", options.master_port);
  }
  if (options.nnodes > 1 && options.master_addr.empty()) {
    return Bad("nnodes = ", options.nnodes,
               " needs master_addr, the address of node 0, and master_port, a free port there; launch can take "
               "--rdzv_backend=tcp instead");
  }
  if (options.nnodes > 1 && options.master_port == 0) {
    return Bad("nnodes = ", options.nnodes,
               " needs master_port, a port that is free on node 0, the same on every node");
  }
  return absl::OkStatus();
}

absl::Status CheckRestarts(const LaunchOptions& options) {
  if (options.max_restarts < 0) return Bad("max_restarts must be at least 0, but is ", options.max_restarts);
  if (options.max_restarts > 0 && options.nnodes > 1) {
    return Bad("max_restarts = ", options.max_restarts,
               " needs nnodes = 1, or --rdzv_backend=tcp or etcd-v3: by itself no node tells the others that it starts "
               "its ranks "
               "again");
  }
  if (options.stall_timeout < absl::Seconds(30)) {
    return Bad("stall_timeout must be at least 30 s, but is ", absl::FormatDuration(options.stall_timeout));
  }
  if (options.restart_window > absl::ZeroDuration()) return absl::OkStatus();
  return Bad("restart_window must be more than 0, but is ", absl::FormatDuration(options.restart_window));
}

absl::Status CheckLocalRank(const char* name, int local_rank, const LaunchOptions& options) {
  if (local_rank >= 0 && local_rank < options.nproc_per_node) return absl::OkStatus();
  return Bad(name, " names local rank ", local_rank, ", but nproc_per_node is ", options.nproc_per_node);
}

absl::Status CheckFilters(const char* name, const std::vector<std::string>& filters, Streams stream,
                          const LaunchOptions& options) {
  if (filters.empty()) return absl::OkStatus();
  for (int rank = 0; rank < options.nproc_per_node; ++rank) {
    if (options.tee.Have(rank, stream)) return absl::OkStatus();
  }
  return Bad(name, " needs tee: no rank has its ", stream == Streams::kStdout ? "stdout" : "stderr", " teed");
}

absl::Status CheckOutput(const LaunchOptions& options) {
  for (const auto& [rank, streams] : options.redirects.by_local_rank) {
    LOCKSTEP_RETURN_IF_ERROR(CheckLocalRank("redirects", rank, options));
  }
  for (const auto& [rank, streams] : options.tee.by_local_rank) {
    LOCKSTEP_RETURN_IF_ERROR(CheckLocalRank("tee", rank, options));
  }
  for (const int rank : options.shown_local_ranks) {
    LOCKSTEP_RETURN_IF_ERROR(CheckLocalRank("local_ranks_filter", rank, options));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      CheckFilters("duplicate_stdout_filters", options.duplicate_stdout_filters, Streams::kStdout, options));
  return CheckFilters("duplicate_stderr_filters", options.duplicate_stderr_filters, Streams::kStderr, options);
}

}  // namespace

absl::Status CheckOptions(const std::vector<std::string>& argv, const LaunchOptions& options) {
  if (argv.empty()) return Bad("no program to launch");
  const int argument = options.local_rank_argument.value_or(1);
  if (argument < 1 || argument > argv.size()) {
    return Bad("local_rank_argument must be from 1 to ", argv.size(), ", but is ", argument);
  }
  if (options.nproc_per_node < 1) return Bad("nproc_per_node must be at least 1, but is ", options.nproc_per_node);
  if (options.spares < 0) return Bad("spares must be at least 0, but is ", options.spares);
  if (options.spares > 0 && options.nnodes > 1) {
    return Bad("spares = ", options.spares,
               " needs nnodes = 1, or --rdzv_backend=tcp or etcd-v3: by itself no node tells the others that a rank "
               "has failed");
  }
  if (options.spares > 0 && options.virtual_local_rank) {
    return Bad("spares = ", options.spares, " cannot be used with virtual_local_rank: a spare has no device yet");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckNodes(options));
  LOCKSTEP_RETURN_IF_ERROR(CheckRestarts(options));
  return CheckOutput(options);
}

absl::Status CheckThatChildrenCanBeWaitedFor() {
  struct sigaction action;
  sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler != SIG_IGN && !(action.sa_flags & SA_NOCLDWAIT)) return absl::OkStatus();
  return absl::FailedPreconditionError("launch: this process ignores SIGCHLD, so how its ranks end cannot be known");
}

}  // namespace lockstep::launch
