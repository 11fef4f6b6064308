#include "lockstep/comm/testing/forming.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/comm/testing/forked_ranks.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::testing {
namespace {

// Counts its own, too.
int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd"), end;
  return std::distance(all, end);
}

// Sets the hard limit too, so that nobody can raise the soft one.
void LimitOpenFiles(int count) {
  if (count == 0) return;
  constexpr int kOfAnyProcess = 3;  // standard input, output and error: inherited, but not the test's
  rlimit limit = {};
  limit.rlim_cur = limit.rlim_max = OpenDescriptors() - 1 - kOfAnyProcess + count;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Duration ProcessorTime() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::DurationFromTimespec(used);
}

struct Gates {
  Gate form, use, leave;
};

InitOptions OptionsOf(int rank, int world_size, const std::string& backend, Master& master) {
  setenv("MASTER_ADDR", "127.0.0.1", /*overwrite=*/1);
  setenv("MASTER_PORT", absl::StrCat(master.port).c_str(), /*overwrite=*/1);
  if (rank == 0) {
    setenv("LOCKSTEP_MASTER_LISTEN_FD", absl::StrCat(master.listener.Release()).c_str(), /*overwrite=*/1);
  } else {
    master.listener.Close();
  }
  InitOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.backend = backend;
  options.debug = Debug::kOff;
  return options;
}

FormingCost& CostOf(int rank, Forming& forming) {
  return rank == 0 ? forming.rank0 : rank == 1 ? forming.rank1 : forming.others;
}

absl::Status RunRank(const InitOptions& options, int open_files, absl::Duration late, Gates& gates,
                     const Process::Say& say) {
  for (Gate* const gate : {&gates.form, &gates.use, &gates.leave}) gate->Open();
  const int64_t before = OpenDescriptors();
  LimitOpenFiles(open_files);
  say("ready");
  gates.form.AwaitOpen();
  if (options.rank == options.world_size - 1) absl::SleepFor(late);
  const absl::Duration start = ProcessorTime();
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> group, InitProcessGroup(options));
  const absl::Duration used = ProcessorTime() - start;
  const int64_t forming = internal::RequestsSent(group->store());
  say(absl::StrCat("formed ", forming, " ", OpenDescriptors() - before, " ", absl::ToInt64Microseconds(used)));
  gates.use.AwaitOpen();
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> subgroup, group->NewGroupByHost());
  const int64_t subgrouping = internal::RequestsSent(group->store());
  LOCKSTEP_RETURN_IF_ERROR(group->MonitoredBarrier(group->timeout()));
  say(absl::StrCat("used ", internal::RequestsSent(group->store()) - subgrouping, " ", subgrouping - forming));
  subgroup.reset();
  gates.leave.AwaitOpen();
  group.reset();
  say("left");
  return absl::OkStatus();
}

// The numbers of what a rank said after `prefix`. Not absl::StrSplit(): this file is not optimized, and the program
// would get its templates from here.
std::vector<int64_t> NumbersOf(const Process::Line& line, const std::string& prefix) {
  std::istringstream text(line.text.substr(prefix.size()));
  return {std::istream_iterator<int64_t>(text), std::istream_iterator<int64_t>()};
}

int64_t MedianOf(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Raise(int64_t& most, int64_t value) { most = std::max(most, value); }

}  // namespace

absl::StatusOr<Forming> FormAGroup(int world_size, const std::string& backend, int open_files, absl::Duration late) {
  constexpr absl::Duration kPatience = absl::Minutes(5);
  LOCKSTEP_ASSIGN_OR_RETURN(Master master, ListenForRanks());
  Gates gates;
  std::vector<Process> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank](const Process::Say& say) -> int {
      const absl::Status status = RunRank(OptionsOf(rank, world_size, backend, master), open_files, late, gates, say);
      if (!status.ok()) say(status.ToString());
      // Half a second of a processor goes into LibTorch's destructors of static objects, which exit() calls.
      _exit(0);
    });
  }
  master.listener.Close();
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitLineOf(rank, ranks[rank], "ready", kPatience).status());
  }
  Forming forming;
  std::vector<int64_t> requests;
  absl::Duration start = Process::Now(), last = start;
  gates.form.Open();
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Process::Line formed, AwaitLineOf(rank, ranks[rank], "formed", kPatience));
    last = std::max(last, formed.time);
    const std::vector<int64_t> numbers = NumbersOf(formed, "formed");
    FormingCost& cost = CostOf(rank, forming);
    Raise(cost.requests, numbers.at(0));
    if (rank > 1) requests.push_back(numbers.at(0));
    Raise(cost.descriptors, numbers.at(1));
    forming.cpu += absl::Microseconds(numbers.at(2));
  }
  forming.forming = last - start;
  forming.median_requests = MedianOf(std::move(requests));
  gates.use.Open();
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Process::Line used, AwaitLineOf(rank, ranks[rank], "used", kPatience));
    const std::vector<int64_t> numbers = NumbersOf(used, "used");
    FormingCost& cost = CostOf(rank, forming);
    Raise(cost.barrier_requests, numbers.at(0));
    Raise(cost.subgroup_requests, numbers.at(1));
  }
  start = last = Process::Now();
  gates.leave.Open();
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Process::Line left, AwaitLineOf(rank, ranks[rank], "left", kPatience));
    last = std::max(last, left.time);
  }
  forming.leaving = last - start;
  return forming;
}

}  // namespace lockstep::comm::testing
