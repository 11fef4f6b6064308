// The flags of the launch program: torchrun's, and a few more.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_FLAG_NAMES_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_FLAG_NAMES_H_

#include <string>
#include <vector>

namespace lockstep::launch::internal {

struct Flag {
  enum Kind { kValue, kSwitch, kUnsupported };

  const char* name;  // with underscores
  Kind kind;
  const char* instead;  // of an unsupported flag: how to do without
};

// The flag of this name, or null. "shutdown_timeout", torchrun's name of "grace", is another name of it.
const Flag* FindFlag(const std::string& name);

// The same for a name of one letter: r, t and m are redirects, tee and module.
const Flag* FindShortFlag(char letter);

// The names of all flags and --help, which a misspelled name may mean.
std::vector<std::string> FlagNames();

// The flags with a value that are supported. A later one overrides what an earlier one has set.
std::vector<std::string> ValueFlags();

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_FLAG_NAMES_H_
