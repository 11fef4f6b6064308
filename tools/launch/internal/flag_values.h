// From the text of a flag's value to an option.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_FLAG_VALUES_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_FLAG_VALUES_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

// A flag's value and its source: "--nproc-per-node" or "PET_NPROC_PER_NODE".
struct GivenFlag {
  std::string source, value;
};

// Sets the option of the flag `name`, which has a value. `environment` has this process's variables. InvalidArgument,
// which says what is expected, for a value that the flag does not have.
absl::Status SetOption(const std::string& name, const GivenFlag& given,
                       const std::map<std::string, std::string>& environment, LaunchOptions* options);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_FLAG_VALUES_H_
