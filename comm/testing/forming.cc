#include "lockstep/comm/testing/forming.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/comm/store/internal/listen_socket.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::testing {
namespace {

int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd"), end;
  return std::distance(all, end);
}

absl::Duration ProcessorTime() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::DurationFromTimespec(used);
}

// Holds back the processes that were forked after it until the process that made it opens it.
class Gate {
 public:
  Gate() {
    if (pipe2(ends_, O_CLOEXEC) != 0) abort();
  }
  ~Gate() {
    Open();
    close(ends_[0]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Closes this process's end. Each forked process must do so as well, since it has a copy.
  void Open() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }
  void AwaitOpen() const {
    char byte;
    while (read(ends_[0], &byte, 1) > 0) continue;
  }

 private:
  int ends_[2];
};

struct Gates {
  Gate form, leave;
};

struct Master {
  int listener = -1;
  int port = 0;
};

InitOptions OptionsOf(int rank, int world_size, const std::string& backend, const Master& master) {
  setenv("MASTER_ADDR", "127.0.0.1", /*overwrite=*/1);
  setenv("MASTER_PORT", absl::StrCat(master.port).c_str(), /*overwrite=*/1);
  if (rank == 0) {
    setenv("LOCKSTEP_MASTER_LISTEN_FD", absl::StrCat(master.listener).c_str(), /*overwrite=*/1);
  } else {
    close(master.listener);
  }
  InitOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.backend = backend;
  options.debug = Debug::kOff;
  return options;
}

void RunRank(const InitOptions& options, Gates& gates, const Process::Say& say) {
  gates.form.Open();
  gates.leave.Open();
  const int64_t before = OpenDescriptors();
  say("ready");
  gates.form.AwaitOpen();
  const absl::Duration start = ProcessorTime();
  auto group = InitProcessGroup(options);
  if (!group.ok()) return say(group.status().ToString());
  const absl::Duration used = ProcessorTime() - start;
  say(absl::StrCat("formed ", internal::RequestsSent((*group)->store()), " ", OpenDescriptors() - before, " ",
                   absl::ToInt64Microseconds(used)));
  gates.leave.AwaitOpen();
  group->reset();
  say("left");
}

absl::StatusOr<Process::Line> Await(Process& process, const std::string& prefix, int rank, absl::Duration patience) {
  const std::optional<Process::Line> line = process.AwaitLine("", patience);
  if (!line) return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " did not say \"", prefix, "\""));
  if (line->text.compare(0, prefix.size(), prefix) == 0) return *line;
  return absl::InternalError(absl::StrCat("rank ", rank, " said \"", line->text, "\" and not \"", prefix, "\""));
}

void Add(const Process::Line& formed, FormingCost& most, absl::Duration& cpu) {
  const std::vector<std::string> words = absl::StrSplit(formed.text, ' ');
  FormingCost cost;
  int64_t microseconds = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[1], &cost.requests) ||
      !absl::SimpleAtoi(words[2], &cost.descriptors) || !absl::SimpleAtoi(words[3], &microseconds)) {
    abort();
  }
  most = {std::max(most.requests, cost.requests), std::max(most.descriptors, cost.descriptors)};
  cpu += absl::Microseconds(microseconds);
}

}  // namespace

absl::StatusOr<Forming> FormAGroup(int world_size, const std::string& backend, absl::Duration patience) {
  Master master;
  LOCKSTEP_ASSIGN_OR_RETURN(master.listener, internal::BindListenSocket("127.0.0.1", 0));
  LOCKSTEP_ASSIGN_OR_RETURN(master.port, internal::BoundPort(master.listener));
  Gates gates;
  std::vector<Process> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank](const Process::Say& say) -> int {
      RunRank(OptionsOf(rank, world_size, backend, master), gates, say);
      // Half a second of a processor goes into LibTorch's destructors of static objects, which exit() calls.
      _exit(0);
    });
  }
  close(master.listener);
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(Await(ranks[rank], "ready", rank, patience).status());
  }
  Forming forming;
  absl::Duration start = Process::Now(), last = start;
  gates.form.Open();
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Process::Line formed, Await(ranks[rank], "formed", rank, patience));
    last = std::max(last, formed.time);
    Add(formed, rank == 0 ? forming.rank0 : forming.others, forming.cpu);
  }
  forming.forming = last - start;
  start = last = Process::Now();
  gates.leave.Open();
  for (int rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Process::Line left, Await(ranks[rank], "left", rank, patience));
    last = std::max(last, left.time);
  }
  forming.leaving = last - start;
  return forming;
}

}  // namespace lockstep::comm::testing
