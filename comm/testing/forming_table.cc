// Prints the tables of docs/performance_notes.md: what it costs ranks to form a group, and to watch each other.
//
//   ./bazelw run //comm/testing:forming_table -- [--ranks=16,64,128,256,1000] [--backend=shm] [--open_files=1024] [--idle_seconds=10]

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/forming.h"
#include "lockstep/comm/testing/watching.h"

DEFINE_string(ranks, "16,64,128,256,1000", "world sizes");
DEFINE_string(backend, "shm", "the groups' backend");
DEFINE_int32(open_files, 0, "hard limit of a rank's descriptors while it forms a group; 0: the limit of this process");
DEFINE_int32(idle_seconds, 10, "how long the ranks of the second table do nothing");

namespace lockstep::comm::testing {
namespace {

absl::Status PrintForming(const std::vector<int64_t>& sizes) {
  std::printf(
      "| ranks | formed in | processor time of a rank | left in | requests: rank 0, others' median, maximum "
      "| of a monitored "
      "barrier | of a sub-group | descriptors: rank 0, rank 1, others |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const int64_t size : sizes) {
    const absl::StatusOr<Forming> forming = FormAGroup(static_cast<int>(size), FLAGS_backend, FLAGS_open_files);
    if (!forming.ok()) return Annotate(forming.status(), absl::StrCat(size, " ranks"));
    std::printf("| %" PRId64 " | %.2f s | %.1f ms | %.2f s | %" PRId64 ", %" PRId64 ", %" PRId64 " | %" PRId64
                ", %" PRId64 " | %" PRId64 ", %" PRId64 " | %" PRId64 ", %" PRId64 ", %" PRId64 " |\n",
                size, absl::ToDoubleSeconds(forming->forming), absl::ToDoubleMilliseconds(forming->cpu) / size,
                absl::ToDoubleSeconds(forming->leaving), forming->rank0.requests, forming->median_requests,
                std::max(forming->rank1.requests, forming->others.requests), forming->rank0.barrier_requests,
                forming->others.barrier_requests, forming->rank0.subgroup_requests, forming->others.subgroup_requests,
                forming->rank0.descriptors, forming->rank1.descriptors, forming->others.descriptors);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::StatusOr<Watching> WatchADeath(int64_t size, int victim, absl::Duration idle) {
  WatchingOptions options;
  options.world_size = static_cast<int>(size);
  options.victim = victim;
  options.idle = idle;
  const absl::StatusOr<Watching> watching = WatchARankDie(options);
  if (!watching.ok()) return Annotate(watching.status(), absl::StrCat(size, " ranks, of which ", victim, " dies"));
  return watching;
}

absl::Status PrintWatching(const std::vector<int64_t>& sizes) {
  const absl::Duration idle = absl::Seconds(FLAGS_idle_seconds);
  std::printf(
      "\n| ranks | the last rank's death: half know it in, all in | rank 0's: half, all | idle: processor time a "
      "minute, wakeups |\n");
  std::printf("|---|---|---|---|\n");
  for (const int64_t size : sizes) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Watching last, WatchADeath(size, static_cast<int>(size) - 1, idle));
    LOCKSTEP_ASSIGN_OR_RETURN(const Watching first, WatchADeath(size, 0, absl::ZeroDuration()));
    std::printf("| %" PRId64 " | %.0f ms, %.0f ms | %.0f ms, %.0f ms | %.1f ms, %.0f |\n", size,
                absl::ToDoubleMilliseconds(last.median), absl::ToDoubleMilliseconds(last.last),
                absl::ToDoubleMilliseconds(first.median), absl::ToDoubleMilliseconds(first.last),
                std::max(0.0, absl::ToDoubleMilliseconds(last.idle_cpu)) * (absl::Minutes(1) / idle),
                static_cast<double>(last.idle_wakeups) * (absl::Minutes(1) / idle));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, FlagNumbers("ranks", FLAGS_ranks, 2, 10000));
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"idle_seconds", static_cast<double>(FLAGS_idle_seconds), 1},
                                        {"open_files", static_cast<double>(FLAGS_open_files), 0}}));
  LOCKSTEP_RETURN_IF_ERROR(PrintForming(sizes));
  return PrintWatching(sizes);
}

}  // namespace
}  // namespace lockstep::comm::testing

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Forks ranks that form a group, and prints the time until the last rank has its group, the time until the last one has
left it, and each rank's requests to the store and descriptors that the group keeps open. Then forks ranks that watch
each other, and prints the time until all others know that the last rank, or rank 0, was killed, and what the watches of
all ranks together cost while nothing happens.

  forming_table --ranks=16,64 --backend=shm --open_files=1024 --idle_seconds=10
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::comm::testing::Run();
  if (!status.ok()) std::fprintf(stderr, "forming_table: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
