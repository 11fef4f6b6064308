// The flags of the launch program, torchrun's and a few more: one row each.

#ifndef LOCKSTEP_LAUNCH_FLAGS_FLAG_TABLE_H_
#define LOCKSTEP_LAUNCH_FLAGS_FLAG_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/flags/settings.h"

namespace lockstep::launch {

struct Flag {
  enum Kind {
    kValue,
    kSwitch,
    kQuestion,     // launch answers and starts nothing; there is no variable for it
    kAlias,        // another name of the flag in the row before
    kVariable,     // an environment variable, which is in --help only
    kUnsupported,  // torchrun's; `help` says how to do without it
  };

  const char* name;  // with underscores
  Kind kind;
  const char* value;                                          // what --help calls its value; null without one
  absl::Status (*set)(const GivenFlag& given, Settings* to);  // null: ParseCommandLine() looks whether it is given
  const char* help;
  char letter = 0;  // of its short name, as r of -r
};

// Flags that belong together.
struct FlagGroup {
  const char* title;
  std::vector<Flag> flags;
  const char* ending;  // of the group's text in --help
};

// In the order of --help.
const std::vector<FlagGroup>& FlagGroups();

// The flag of this name, or null. An alias stands for the row before it.
const Flag* FindFlag(const std::string& name);

// The flag with a name of one letter, or null.
const Flag* FindShortFlag(char letter);

// The names of all flags, which a misspelled name may mean.
std::vector<std::string> FlagNames();

// The text of --help.
std::string UsageText();

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_FLAG_TABLE_H_
