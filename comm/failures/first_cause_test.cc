// Which rank a launcher names when one fails and the others fail of it: each cause, on each rank of 2 and 3, again and
// again, under Spawn and under the launch program. Ranks have a watch and no LibTorch, so that a job takes
// milliseconds.
//
// FIRST_CAUSE_RUNS sets how often each case runs.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/process.h"
#include "lockstep/comm/watch/testing/watches.h"
#include "lockstep/comm/watch/watch.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::comm {
namespace {

using testing::FolderStore;
using testing::OptionsOver;
using testing::TemporaryFolder;

constexpr char kError[] = "the disk is full";

// Does with a watch and the launcher what a process group does.
class Group {
 public:
  Group(FolderStore* store, int rank, int size) : rank_(rank) {
    const auto key = [](int of) { return absl::StrCat("identity", of); };
    if (!store->Set(key(rank), EncodeIdentity(IdentityOfThisProcess(rank))).ok()) abort();
    std::vector<RankIdentity> ranks;
    for (int of = 0; of < size; ++of) {
      ranks.push_back(DecodeIdentity(store->Get(key(of), absl::Now() + absl::Seconds(20)).value()).value());
    }
    WatchOptions options = OptionsOver(store, rank, std::move(ranks));
    options.on_failure = [this](const absl::Status&) {
      if (!closing_) launch::RecordFailureOfAnotherRank();
    };
    watch_ = Watch::Create(std::move(options)).value();
  }

  ~Group() {
    closing_ = true;
    if (std::uncaught_exceptions() > 0) watch_->Abort(absl::AbortedError("left by an exception"));
  }

  // A collective that not all ranks begin.
  absl::Status AllReduce() {
    watch_->Begin(0, "all_reduce");
    while (watch_->failure().ok()) absl::SleepFor(absl::Milliseconds(1));
    launch::RecordFailureOfAnotherRank();  // the watch's thread may not have come to it
    return Annotate(watch_->failure(), absl::StrCat("rank ", rank_, ": all_reduce #0"));
  }

 private:
  const int rank_;
  std::atomic<bool> closing_{false};
  std::unique_ptr<Watch> watch_;
};

[[noreturn]] void ThrowInAnotherThread() {
  std::thread([] { throw std::runtime_error(kError); }).join();
  abort();
}

// Does what `cause` names on the rank to blame, inside its group and after it.
absl::Status Fail(const std::string& cause, std::unique_ptr<Group> group) {
  if (cause == "exception") throw std::runtime_error(kError);
  if (cause == "thread") ThrowInAnotherThread();
  if (cause == "exit") exit(3);
  if (cause == "kill") raise(SIGKILL);
  if (cause == "segv") {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (cause == "late") {
    group.reset();
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::ResourceExhaustedError(kError);
}

absl::Status RunRank(const std::string& cause, int culprit, const std::string& folder, int rank, int size) {
  if (cause == "constructor" && rank == culprit) return absl::ResourceExhaustedError(kError);
  FolderStore store(folder);
  auto group = std::make_unique<Group>(&store, rank, size);
  return rank == culprit ? Fail(cause, std::move(group)) : group->AllReduce();
}

bool Runs(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return !stat.empty() && stat.substr(stat.rfind(')'), 3) != ") Z";
}

// A program that knows nothing of launchers: ranks read from a pipe each, and when its writer has ended they exit
// with 1.
int RunForeignRank(const std::string& cause, int culprit, const std::string& folder, int rank, int size) {
  const auto path = [&](int of) { return absl::StrCat(folder, "/pipe", of); };
  if (rank != culprit) {
    int writer = 0;
    std::ifstream(path(rank)) >> writer;
    while (Runs(writer)) absl::SleepFor(absl::Milliseconds(1));
    return 1;
  }
  for (int of = 0; of < size; ++of) {
    if (of != culprit) std::ofstream(path(of)) << getpid();
  }
  // The time of the end is not known for a rank that ends while the launcher is still about to watch it.
  absl::SleepFor(absl::Milliseconds(300));
  if (cause == "foreign_kill") raise(SIGKILL);
  return 3;
}

// The program of a test: job <how> <cause> <culprit> <size> <folder>.
int RunJob(char** argv) {
  const std::string how = argv[2], cause = argv[3], folder = argv[6];
  const int culprit = std::stoi(argv[4]), size = std::stoi(argv[5]);
  const auto rank = [] { return std::stoi(getenv("RANK")); };
  if (how == "foreign") return RunForeignRank(cause, culprit, folder, rank(), size);
  const auto train = [&](int) { return RunRank(cause, culprit, folder, rank(), size); };
  if (how == "silent") return train(0).ok() ? 0 : 1;
  const absl::Status status = launch::SpawnUnlessLaunched(size, train);
  if (how == "spawn" && !status.ok()) fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return launch::ExitCode(status);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

struct Case {
  std::string how, cause;
  int culprit, size;
};

std::string NameOf(const Case& c) { return absl::StrCat(c.how, " ", c.cause, " on rank ", c.culprit, " of ", c.size); }

std::string Self() {
  std::string path(4096, '\0');
  path.resize(std::max<ssize_t>(readlink("/proc/self/exe", path.data(), path.size()), 0));
  return path;
}

// Returns the output of the job of `c`.
std::string OutputOf(const Case& c) {
  const TemporaryFolder folder;
  const std::string& path = folder.path();
  for (int of = 0; of < c.size; ++of) mkfifo(absl::StrCat(path, "/pipe", of).c_str(), 0600);
  const std::string launcher =
      c.how == "spawn" ? "" : absl::StrCat(getenv("LAUNCH"), " --nproc_per_node=", c.size, " ");
  const std::string output = path + "/output";
  const std::string command = absl::StrCat("ulimit -c 0; timeout 60 ", launcher, Self(), " job ", c.how, " ", c.cause,
                                           " ", c.culprit, " ", c.size, " ", path, " > ", output, " 2>&1");
  if (system(command.c_str()) == 0) return "it did not fail";
  return ReadAll(output);
}

// The line that names the culprit in the output of a job whose ranks fail by `cause`.
const std::map<std::string, std::string>& Lines() {
  static const auto& lines = *new std::map<std::string, std::string>{
      {"exception", "exited with code 1: exception: the disk is full"},
      {"status", "exited with code 1: the disk is full"},
      {"constructor", "exited with code 1: the disk is full"},
      {"late", "exited with code 1: the disk is full"},
      {"thread", "was killed by signal 6 \\(SIGABRT\\): uncaught exception: the disk is full"},
      {"exit", "exited with code 3"},
      {"kill", "was killed by signal 9 \\(SIGKILL\\)"},
      {"segv", "was killed by signal 11 \\(SIGSEGV\\)"},
      {"silent_status", "exited with code 1"},
      {"foreign_exit", "exited with code 3"},
      {"foreign_kill", "was killed by signal 9 \\(SIGKILL\\)"},
  };
  return lines;
}

std::vector<Case> AllCases(int runs) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& how, const std::string& cause) {
    for (int size = 2; size <= 3; ++size) {
      for (int culprit = 0; culprit < size; ++culprit) cases.insert(cases.end(), runs, {how, cause, culprit, size});
    }
  };
  for (const char* cause : {"exception", "status", "constructor", "late", "thread", "exit", "kill", "segv"}) {
    add("spawn", cause);
    add("launch", cause);
  }
  add("silent", "silent_status");
  add("foreign", "foreign_exit");
  add("foreign", "foreign_kill");
  return cases;
}

TEST(FirstCause, IsNamedWhateverItIsAndOnWhicheverRank) {
  const char* runs = getenv("FIRST_CAUSE_RUNS");
  const std::vector<Case> cases = AllCases(runs ? std::stoi(runs) : 1);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::map<std::string, std::vector<std::string>> wrong;
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      const Case& c = cases[i];
      const std::string output = OutputOf(c);
      const std::string expected = absl::StrCat("(^|\n)(launch: )?rank ", c.culprit, " \\(local rank ", c.culprit,
                                                ", pid [0-9]+\\) ", Lines().at(c.cause), "(;|\n)");
      if (::testing::Matches(::testing::ContainsRegex(expected))(output)) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      wrong[NameOf(c)].push_back(output);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < 8; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  for (const auto& [name, outputs] : wrong) {
    ADD_FAILURE() << name << ": " << outputs.size() << " times another was named, such as by\n" << outputs[0];
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  if (argc == 7 && std::string(argv[1]) == "job") return lockstep::comm::RunJob(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
