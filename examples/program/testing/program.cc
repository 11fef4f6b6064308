#include "lockstep/examples/program/testing/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples::testing {
namespace {

using launch::testing::ReadFile;

// The parent of `pid`, from /proc/pid/stat: "pid (name) state parent ...".
pid_t ParentOf(const std::string& pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 1), ' ');
  int parent = 0;
  if (fields.size() < 3 || fields[1] == "Z" || !absl::SimpleAtoi(fields[2], &parent)) return 0;
  return parent;
}

int RankOf(const std::string& pid) {
  for (absl::string_view variable : absl::StrSplit(ReadFile(absl::StrCat("/proc/", pid, "/environ")), '\0')) {
    int rank;
    if (absl::ConsumePrefix(&variable, "RANK=") && absl::SimpleAtoi(variable, &rank)) return rank;
  }
  return -1;
}

bool DescendsFrom(pid_t pid, pid_t ancestor) {
  while (pid > 0 && pid != ancestor) pid = ParentOf(absl::StrCat(pid));
  return pid == ancestor;
}

}  // namespace

Program::Program(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment) {
  output_path_ = absl::StrCat(getenv("TEST_TMPDIR"), "/output.XXXXXX");
  const UniqueFd output(mkostemp(&output_path_[0], O_CLOEXEC));
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(output.get(), STDOUT_FILENO);
    dup2(output.get(), STDERR_FILENO);
    setenv("TORCH_DISTRIBUTED_DEBUG", "OFF", 1);
    for (const auto& variable : environment) setenv(variable.first.c_str(), variable.second.c_str(), 1);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
}

Program::~Program() {
  if (result_ < 0) {
    kill(pid_, SIGKILL);
    Wait(absl::Seconds(10));
  }
}

int Program::Wait(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  int status = 0;
  while (result_ < 0) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      result_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (absl::Now() > deadline) {
      return -1;
    } else {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  return result_;
}

std::string Program::Output() const { return ReadFile(output_path_); }

bool Program::AwaitTexts(const std::vector<std::string>& texts) const {
  const auto has_texts = [&] {
    const std::string output = Output();
    size_t end = 0;
    return std::all_of(texts.begin(), texts.end(), [&](const std::string& text) {
      const size_t begin = output.find(text, end);
      end = begin + text.size();
      return begin != std::string::npos;
    });
  };
  return launch::testing::Eventually(has_texts, absl::Seconds(60));
}

std::map<int, pid_t> Program::Ranks() const {
  std::map<int, pid_t> ranks;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = proc ? readdir(proc) : nullptr) {
    int pid;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const pid_t parent = ParentOf(entry->d_name);
    const int rank = RankOf(entry->d_name);
    // A launcher has no RANK, and a process that a rank has started has the rank's.
    if (rank >= 0 && RankOf(absl::StrCat(parent)) < 0 && DescendsFrom(parent, pid_)) ranks[rank] = pid;
  }
  if (proc) closedir(proc);
  return ranks;
}

std::string RunProgram(const std::vector<std::string>& argv, int* code,
                       const std::map<std::string, std::string>& environment) {
  Program program(argv, environment);
  *code = program.Wait(absl::Minutes(3));
  return program.Output();
}

void ExpectError(const std::vector<std::string>& argv, const std::string& message,
                 const std::map<std::string, std::string>& environment) {
  const absl::Time start = absl::Now();
  int code;
  std::string output = RunProgram(argv, &code, environment);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_NE(code, 0);
  EXPECT_LT(code, 128) << "a signal or a core dump: " << output;
  EXPECT_THAT(output, ::testing::HasSubstr(message));
  ASSERT_FALSE(output.empty());
  output.pop_back();
  EXPECT_THAT(output, ::testing::Not(::testing::HasSubstr("\n"))) << "more than one line";
}

}  // namespace lockstep::examples::testing
