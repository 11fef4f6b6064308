#include "lockstep/launch/testing/launch_program.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch::testing {

// Bazel starts tests with SIGPIPE ignored, which processes inherit.
LaunchProgramTest::LaunchProgramTest() : folder_(NewFolder()) { signal(SIGPIPE, SIG_DFL); }

pid_t LaunchProgramTest::StartCommand(const std::vector<std::string>& command) {
  ProcessSpec spec;
  spec.path = "/bin/sh";
  spec.argv = {"sh", "-c", "exec \"$@\" > $D/out 2> $D/err", "sh"};
  spec.argv.insert(spec.argv.end(), command.begin(), command.end());
  spec.environment = ChangedEnvironment({{"D", folder_}, {"XDG_RUNTIME_DIR", folder_}});
  return StartProcess(spec)->pid;
}

pid_t LaunchProgramTest::Start(const std::vector<std::string>& args) {
  std::vector<std::string> command = {getenv("LAUNCH")};
  command.insert(command.end(), args.begin(), args.end());
  return StartCommand(command);
}

pid_t LaunchProgramTest::StartScript(const std::string& script) { return StartCommand({"bash", "-c", script}); }

int LaunchProgramTest::Wait(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string LaunchProgramTest::Out() const { return ReadFile(folder_ + "out"); }

std::string LaunchProgramTest::Err() const { return ReadFile(folder_ + "err"); }

}  // namespace lockstep::launch::testing
