// Prints the table of comm/README.md: what it costs ranks to form a group.
//
//   ./bazelw run //comm/testing:forming_table -- [--ranks=16,64,128,256,1000] [--backend=shm]

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

DEFINE_string(ranks, "16,64,128,256,1000", "world sizes");
DEFINE_string(backend, "shm", "the groups' backend");

namespace lockstep::comm::testing {
namespace {

absl::Status Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, FlagNumbers("ranks", FLAGS_ranks, 2, 10000));
  std::printf(
      "| ranks | formed in | processor time of a rank | left in | requests: rank 0, others | descriptors: rank 0, "
      "others |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const int64_t size : sizes) {
    const absl::StatusOr<Forming> forming = FormAGroup(static_cast<int>(size), FLAGS_backend);
    if (!forming.ok()) return Annotate(forming.status(), absl::StrCat(size, " ranks"));
    std::printf("| %" PRId64 " | %.2f s | %.1f ms | %.2f s | %" PRId64 ", %" PRId64 " | %" PRId64 ", %" PRId64 " |\n",
                size, absl::ToDoubleSeconds(forming->forming), absl::ToDoubleMilliseconds(forming->cpu) / size,
                absl::ToDoubleSeconds(forming->leaving), forming->rank0.requests, forming->others.requests,
                forming->rank0.descriptors, forming->others.descriptors);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::comm::testing

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Forks ranks that form a group, and prints the time until the last rank has its group, the time until the last one has
left it, and each rank's requests to the store and descriptors that the group keeps open.

  forming_table --ranks=16,64 --backend=shm
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::comm::testing::Run();
  if (!status.ok()) std::fprintf(stderr, "forming_table: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
