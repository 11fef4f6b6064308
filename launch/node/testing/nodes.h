// Several launch programs as the nodes of one job, for tests: on this host, or each on its own host.

#ifndef LOCKSTEP_LAUNCH_NODE_TESTING_NODES_H_
#define LOCKSTEP_LAUNCH_NODE_TESTING_NODES_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/testing/network_hosts.h"

namespace lockstep::launch::testing {

// The test needs the program's path in $LAUNCH. Processes find the test's folder in $D, and the node's name in $NODE.
// The launchers' sockets are in the folder.
// At the end of a test, all processes that still run are killed.
class NodesTest : public ::testing::Test {
 protected:
  NodesTest();
  ~NodesTest() override;

  // Makes `count` hosts, on which StartOn() starts nodes. Skips the test where that is not allowed.
  void MakeHosts(int count);

  // Starts `launch args...` with the variable LOCKSTEP_JOB_SECRET.
  void Start(const std::string& name, const std::vector<std::string>& args) { StartOn(-1, name, args); }
  void StartOn(int host, const std::string& name, const std::vector<std::string>& args);
  void Signal(const std::string& name, int signal);
  pid_t PidOf(const std::string& name) const { return pids_.at(name); }
  // The pids of the keeper, which is PidOf(), of the second keeper, and of the launcher.
  std::vector<pid_t> ProcessesOf(const std::string& name) const;
  // Its exit code, minus the signal that ended it, or -1000 if it still runs after 60 s.
  int Wait(const std::string& name);
  // Expects that all of them exit with `code`, within 2 s of the last rank. When a rank ends, its script writes the
  // result of `date +%s%N` to $D/ended.<name>.
  void ExpectPromptEnd(const std::vector<std::string>& names, int code);
  // A script for bash, executable, in the test's folder.
  void WriteProgram(const std::string& name, const std::string& script) const;
  std::string Out(const std::string& name) const;
  std::string Err(const std::string& name) const;
  // Waits until a line of $D/starts.<name> begins with `world_size` and a space. A script writes such a line first.
  bool Started(const std::string& name, int world_size) const;
  // Waits for `times` such lines.
  bool StartedAgain(const std::string& name, int world_size, int times) const;

  const std::string folder_;                                        // with a slash at its end
  std::string secret_ = "a secret for the tests of several nodes";  // "": none
  std::unique_ptr<comm::testing::NetworkHosts> hosts_;

 private:
  std::map<std::string, pid_t> pids_;
};

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_NODE_TESTING_NODES_H_
