// Runs the launch program in a folder of the test's own.

#ifndef LOCKSTEP_LAUNCH_TESTING_LAUNCH_PROGRAM_H_
#define LOCKSTEP_LAUNCH_TESTING_LAUNCH_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::launch::testing {

// The test needs the program's path in $LAUNCH. Processes find the folder in $D, and the launchers' sockets are in it.
class LaunchProgramTest : public ::testing::Test {
 protected:
  LaunchProgramTest();

  // Starts `launch args...`. Its output goes to files.
  pid_t Start(const std::vector<std::string>& args);
  // Starts a script of bash, which starts $LAUNCH. Its output goes to files.
  pid_t StartScript(const std::string& script);
  // Its exit code, or minus the signal.
  int Wait(pid_t pid);
  int Run(const std::vector<std::string>& args) { return Wait(Start(args)); }
  int RunScript(const std::string& script) { return Wait(StartScript(script)); }
  std::string Out() const;
  std::string Err() const;

  const std::string folder_;  // with a slash at its end

 private:
  pid_t StartCommand(const std::vector<std::string>& command);
};

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_TESTING_LAUNCH_PROGRAM_H_
