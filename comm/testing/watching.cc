#include "lockstep/comm/testing/watching.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/rendezvous/meeting.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/comm/testing/forked_ranks.h"
#include "lockstep/comm/testing/process.h"
#include "lockstep/comm/watch/watch.h"

namespace lockstep::comm::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);
// After the last rank has its watch, the threads that made them end.
constexpr absl::Duration kSettling = absl::Milliseconds(500);

struct Gates {
  Gate meet, rest, tell, leave;
};

struct Usage {
  absl::Duration cpu;
  int64_t wakeups = 0;
};

Usage UsageOf(int who) {
  rusage usage = {};
  getrusage(who, &usage);
  return {absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime), usage.ru_nvcsw};
}

// The usage of this process's threads except the calling one, which waits for the test.
Usage UsageOfOtherThreads() {
  const Usage all = UsageOf(RUSAGE_SELF), own = UsageOf(RUSAGE_THREAD);
  return {all.cpu - own.cpu, all.wakeups - own.wakeups};
}

absl::StatusOr<Rendezvous> Open(int rank, int world_size, Master& master) {
  RendezvousOptions options;
  options.init_method = "env://";
  options.rank = rank;
  options.world_size = world_size;
  options.timeout = kTimeout;
  options.environment.master_addr = "127.0.0.1";
  options.environment.master_port = master.port;
  if (rank == 0) {
    options.environment.master_listen_fd = master.listener.Release();
  } else {
    master.listener.Close();
  }
  return OpenStore(options);
}

absl::StatusOr<std::unique_ptr<Watch>> MakeWatch(int rank, std::vector<RankIdentity> ranks,
                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                 const Process::Say& say) {
  WatchOptions options;
  options.rank = rank;
  options.ranks = std::move(ranks);
  options.set = [store](const std::string& key, const std::string& value) {
    return TorchStatus("", [&] { store->set(key, value); });
  };
  options.get = [store](const std::string& key, absl::Time deadline) {
    return TorchStatusOr("", [&] {
      store->wait({key}, absl::ToChronoMilliseconds(std::max(deadline - absl::Now(), absl::Milliseconds(1))));
      return store->get_to_str(key);
    });
  };
  options.deadline = absl::Now() + kTimeout;
  options.on_failure = [say](const absl::Status& cause) { say(absl::StrCat("knows ", cause.message())); };
  return Watch::Create(std::move(options));
}

absl::Status RunRank(int rank, int world_size, Master& master, Gates& gates, const Process::Say& say) {
  for (Gate* const gate : {&gates.meet, &gates.rest, &gates.tell, &gates.leave}) gate->Open();
  say("ready");
  gates.meet.AwaitOpen();
  LOCKSTEP_ASSIGN_OR_RETURN(const Rendezvous rendezvous, Open(rank, world_size, master));
  LOCKSTEP_ASSIGN_OR_RETURN(Met met,
                            MeetAllRanks(rendezvous.store, rank, world_size, /*facts=*/"", absl::Now() + kTimeout));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto watch, MakeWatch(rank, std::move(met.ranks), rendezvous.store, say));
  say("watches");
  gates.rest.AwaitOpen();
  const Usage before = UsageOfOtherThreads();
  say("rests");
  gates.tell.AwaitOpen();
  const Usage after = UsageOfOtherThreads();
  say(absl::StrCat("used ", absl::ToInt64Microseconds(after.cpu - before.cpu), " ", after.wakeups - before.wakeups));
  gates.leave.AwaitOpen();
  return absl::OkStatus();
}

absl::Status Add(const Process::Line& used, Watching& watching) {
  int64_t microseconds = 0, wakeups = 0;
  if (sscanf(used.text.c_str(), "used %" SCNd64 " %" SCNd64, &microseconds, &wakeups) != 2) {
    return absl::InternalError(used.text);
  }
  watching.idle_cpu += absl::Microseconds(microseconds);
  watching.idle_wakeups += wakeups;
  return absl::OkStatus();
}

// The processes, as the test sees them.
class Ranks {
 public:
  explicit Ranks(const WatchingOptions& options, Master& master) : options_(options) {
    for (int rank = 0; rank < options.world_size; ++rank) {
      processes_.emplace_back([&, rank](const Process::Say& say) -> int {
        const absl::Status status = RunRank(rank, options.world_size, master, gates_, say);
        if (!status.ok()) say(status.ToString());
        _exit(0);  // without LibTorch's destructors of static objects
      });
    }
    master.listener.Close();
  }

  absl::Status Meet() {
    LOCKSTEP_RETURN_IF_ERROR(AwaitAll("ready").status());
    gates_.meet.Open();
    return AwaitAll("watches").status();
  }

  absl::Status Rest(Watching& watching) {
    absl::SleepFor(kSettling);
    gates_.rest.Open();
    LOCKSTEP_RETURN_IF_ERROR(AwaitAll("rests").status());
    absl::SleepFor(options_.idle);
    gates_.tell.Open();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Process::Line> lines, AwaitAll("used"));
    for (const Process::Line& line : lines) LOCKSTEP_RETURN_IF_ERROR(Add(line, watching));
    return absl::OkStatus();
  }

  absl::Status LoseOne(Watching& watching) {
    const absl::Duration start = Process::Now();
    processes_[options_.victim].Signal(SIGKILL);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Process::Line> lines, AwaitAll("knows", options_.victim));
    std::vector<absl::Duration> times;
    for (const Process::Line& line : lines) {
      times.push_back(line.time - start);
      if (line.text != lines[0].text || !absl::EndsWith(line.text, "died: signal 9 (Killed)")) {
        return absl::InternalError(absl::StrCat("\"", line.text, "\" and \"", lines[0].text, "\""));
      }
    }
    std::sort(times.begin(), times.end());
    watching.median = times[times.size() / 2];
    watching.last = times.back();
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<Process::Line>> AwaitAll(const std::string& prefix, int but = -1) {
    std::vector<Process::Line> lines;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank == but) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(Process::Line line, AwaitLineOf(rank, processes_[rank], prefix, options_.patience));
      lines.push_back(std::move(line));
    }
    return lines;
  }

  const WatchingOptions options_;
  Gates gates_;
  std::vector<Process> processes_;
};

}  // namespace

absl::StatusOr<Watching> WatchARankDie(const WatchingOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Master master, ListenForRanks());
  Ranks ranks(options, master);
  Watching watching;
  LOCKSTEP_RETURN_IF_ERROR(ranks.Meet());
  LOCKSTEP_RETURN_IF_ERROR(ranks.Rest(watching));
  LOCKSTEP_RETURN_IF_ERROR(ranks.LoseOne(watching));
  return watching;
}

}  // namespace lockstep::comm::testing
