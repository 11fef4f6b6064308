// SIGKILL at every system call of Save, in each of its threads.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/failures/saved_file.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using testing::SavedFile;

// An entry into a system call or a return from it: the `occurrence`-th of its kind, as threads that wait for each other
// make the order of different calls vary.
struct Place {
  int64_t system_call = -1;
  bool returning = false;
  int occurrence = 0;

  bool operator==(const Place& other) const {
    return std::tie(system_call, returning, occurrence) ==
           std::tie(other.system_call, other.returning, other.occurrence);
  }
};

// Numbers the system calls of a process by kind.
class Places {
 public:
  Place Next(pid_t thread) {
    __ptrace_syscall_info info = {};
    ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info);
    const bool returning = info.op != PTRACE_SYSCALL_INFO_ENTRY;
    if (!returning) inside_[thread] = static_cast<int64_t>(info.entry.nr);
    const int64_t system_call = inside_[thread];
    return {system_call, returning, occurrences_[{system_call, returning}]++};
  }

 private:
  std::map<pid_t, int64_t> inside_;
  std::map<std::pair<int64_t, bool>, int> occurrences_;
};

struct Outcome {
  bool traced = true;
  bool killed = false;
  std::vector<Place> passed = {};
};

// Waits for each thread separately, and last for the process's first thread.
void KillAndWait(pid_t process) {
  kill(process, SIGKILL);
  while (waitpid(-1, nullptr, __WALL) > 0) continue;
}

// The signal to pass on to a thread that has stopped for another reason than a system call.
int SignalFor(int status) {
  const bool event = (status >> 16) != 0;
  const int signal = WSTOPSIG(status);
  return event || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal;
}

// Lets `child`, which has stopped itself, run to its end, or kills it where `kill_at` says so.
Outcome Trace(pid_t child, const std::optional<Place>& kill_at) {
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return {false};
  ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
  Outcome outcome;
  Places places;
  ptrace(PTRACE_SYSCALL, child, 0, 0);
  for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
    if (!WIFSTOPPED(status)) continue;
    const bool at_system_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    if (at_system_call) outcome.passed.push_back(places.Next(thread));
    outcome.killed = at_system_call && kill_at == outcome.passed.back();
    if (outcome.killed) break;
    ptrace(PTRACE_SYSCALL, thread, 0, at_system_call ? 0 : SignalFor(status));
  }
  KillAndWait(child);
  return outcome;
}

Outcome SaveAndKill(const std::string& path, const Value& value, const std::optional<Place>& kill_at) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(1);
    raise(SIGSTOP);
    _exit(Save(path, value).ok() ? 0 : 1);
  }
  return Trace(child, kill_at);
}

TEST(Save, KilledAtAnySystemCallLeavesTheOldFileOrTheNewOneAndTheNextSaveTidiesUp) {
  const SavedFile file;
  const Value old_value = Value::Dict({{"weight", at::full({3}, 1.5)}});
  // More than a block, so that a thread writes, and a rest shorter than a block.
  const Value new_value = Value::Dict({{"weight", at::arange(1200000)}, {"epoch", 2}});
  const SaveOptions quick = {/*sync=*/false};
  ASSERT_TRUE(Save(file.path(), old_value, quick).ok());
  const Outcome whole = SaveAndKill(file.path(), new_value, std::nullopt);
  if (!whole.traced) GTEST_SKIP() << "SKIPPED: this system does not let a process trace its child";

  std::set<int64_t> killed_in;
  int left_old = 0, left_new = 0;
  for (const Place& place : whole.passed) {
    SCOPED_TRACE(absl::StrCat(place.returning ? "returning from" : "entering", " system call ", place.system_call,
                              " the ", place.occurrence, "th time"));
    ASSERT_TRUE(Save(file.path(), old_value, quick).ok());
    ASSERT_THAT(file.Names(), ElementsAre("model.pt"));
    const Outcome outcome = SaveAndKill(file.path(), new_value, place);
    const absl::StatusOr<Value> left = Load(file.path());
    ASSERT_TRUE(left.ok()) << left.status();
    const bool is_new = Identical(*left, new_value);
    ASSERT_TRUE(is_new || (outcome.killed && Identical(*left, old_value)));
    if (!outcome.killed) continue;
    killed_in.insert(place.system_call);
    ++(is_new ? left_new : left_old);
  }
  EXPECT_THAT(killed_in, IsSupersetOf<int64_t>({SYS_openat, SYS_pwrite64, SYS_fsync, SYS_renameat, SYS_close}));
  // After the return from renameat it is the new file.
  EXPECT_GT(left_old, 30);
  EXPECT_GT(left_new, 5);
}

}  // namespace
}  // namespace lockstep::checkpoint
