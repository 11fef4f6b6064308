// Several nodes of one job on one host, which meet over TCP.

#ifndef LOCKSTEP_LAUNCH_NODE_TESTING_TCP_NODES_H_
#define LOCKSTEP_LAUNCH_NODE_TESTING_TCP_NODES_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch::testing {

class TcpNodesTest : public NodesTest {
 protected:
  TcpNodesTest() : port_(*launch::FreePort()) {}

  // Flags for a node of this job, and a script for bash that is its program.
  std::vector<std::string> Node(const std::string& nnodes, std::vector<std::string> flags, const std::string& script) {
    std::vector<std::string> args = {absl::StrCat("--nnodes=", nnodes), "--rdzv_backend=tcp",
                                     absl::StrCat("--rdzv_endpoint=127.0.0.1:", port_)};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), {"bash", "-c", script});
    return args;
  }

  // The names of the events in the file, in order, each with a space behind it.
  std::string EventsIn(const std::string& file) const {
    std::string names;
    for (const absl::string_view line : absl::StrSplit(ReadFile(folder_ + file), '\n', absl::SkipEmpty())) {
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits("\"event\":\"", 1));
      names += parts.back().substr(0, parts.back().find('"')) + " ";
    }
    return names;
  }

  const int port_;
};

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_NODE_TESTING_TCP_NODES_H_
