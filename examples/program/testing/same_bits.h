// For tests of training that has the same bits on any number of ranks.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_TESTING_SAME_BITS_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_TESTING_SAME_BITS_H_

#include <string>
#include <vector>

namespace lockstep::examples::testing {

// The SHA-256 of all tensors of the checkpoint at `path`, as `inspect digest` prints it. The test's environment needs
// INSPECT, the path of that program.
std::string DigestOf(const std::string& path);

// Runs `command` on two hosts in network namespaces, with `ranks` ranks on each. Returns the output of both. Sets
// `*code` to the exit code of the first host, and reports a test failure if the second's differs. The test's
// environment needs LAUNCH, the path of the launcher.
std::string RunOnTwoHosts(int ranks, const std::vector<std::string>& command, int* code);

}  // namespace lockstep::examples::testing

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_TESTING_SAME_BITS_H_
