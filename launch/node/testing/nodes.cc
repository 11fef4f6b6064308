#include "lockstep/launch/node/testing/nodes.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch::testing {

NodesTest::NodesTest() : folder_(NewFolder()) {}

NodesTest::~NodesTest() {
  for (const auto& [name, pid] : pids_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void NodesTest::MakeHosts(int count) {
  auto hosts = comm::testing::NetworkHosts::Create(count);
  if (!hosts.ok()) GTEST_SKIP() << hosts.status();
  hosts_ = *std::move(hosts);
}

void NodesTest::StartOn(int host, const std::string& name, const std::vector<std::string>& args) {
  std::vector<std::string> command = {
      "sh", "-c", absl::StrCat("exec \"$@\" >> $D/", name, ".out 2>> $D/", name, ".err"), "sh", getenv("LAUNCH")};
  command.insert(command.end(), args.begin(), args.end());
  std::vector<std::string> environment =
      ChangedEnvironment({{"D", folder_}, {"XDG_RUNTIME_DIR", folder_}, {"NODE", name}});
  if (!secret_.empty()) environment.push_back(absl::StrCat("LOCKSTEP_JOB_SECRET=", secret_));
  std::vector<char*> argv, envp;
  for (std::string& text : command) argv.push_back(text.data());
  for (std::string& text : environment) envp.push_back(text.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  const auto spawn = [&] { EXPECT_EQ(posix_spawn(&pid, "/bin/sh", nullptr, nullptr, argv.data(), envp.data()), 0); };
  if (host < 0) {
    spawn();
  } else {
    hosts_->Run(host, spawn);
  }
  pids_[name] = pid;
}

void NodesTest::Signal(const std::string& name, int signal) { kill(pids_.at(name), signal); }

std::vector<pid_t> NodesTest::ProcessesOf(const std::string& name) const {
  std::vector<pid_t> pids = {PidOf(name)};
  const auto find_next = [&] {
    const std::vector<pid_t> children = ProcessTree().ChildrenOf(pids.back());
    if (!children.empty()) pids.push_back(children[0]);
    return pids.size() == 3;
  };
  EXPECT_TRUE(Eventually(find_next, absl::Seconds(30))) << Err(name);
  pids.resize(3);
  return pids;
}

int NodesTest::Wait(const std::string& name) {
  const pid_t pid = pids_.at(name);
  int status = 0;
  for (int i = 0; i < 6000; ++i) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      pids_.erase(name);
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return -1000;
}

void NodesTest::ExpectPromptEnd(const std::vector<std::string>& names, int code) {
  for (const std::string& name : names) EXPECT_EQ(Wait(name), code) << Err(name);
  const absl::Time now = absl::Now();
  absl::Time last = absl::InfinitePast();
  for (const std::string& name : names) {
    int64_t ns = 0;
    EXPECT_TRUE(absl::SimpleAtoi(ReadFile(absl::StrCat(folder_, "ended.", name)), &ns)) << Err(name);
    last = std::max(last, absl::FromUnixNanos(ns));
  }
  EXPECT_LT(now - last, absl::Seconds(2));
}

void NodesTest::WriteProgram(const std::string& name, const std::string& script) const {
  const std::string path = folder_ + name;
  std::ofstream(path) << "#!/bin/bash\n" << script << "\n";
  chmod(path.c_str(), 0700);
}

std::string NodesTest::Out(const std::string& name) const { return ReadFile(absl::StrCat(folder_, name, ".out")); }

std::string NodesTest::Err(const std::string& name) const { return ReadFile(absl::StrCat(folder_, name, ".err")); }

bool NodesTest::Started(const std::string& name, int world_size) const { return StartedAgain(name, world_size, 1); }

bool NodesTest::StartedAgain(const std::string& name, int world_size, int times) const {
  const std::string start = absl::StrCat(world_size, " ");
  const auto starts = [&] {
    const std::vector<std::string> lines = absl::StrSplit(ReadFile(absl::StrCat(folder_, "starts.", name)), '\n');
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return absl::StartsWith(line, start); });
  };
  return Eventually([&] { return starts() >= times; }, absl::Seconds(40));
}

}  // namespace lockstep::launch::testing
