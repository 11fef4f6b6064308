// The settings that the rows of the table of flags read and set.

#ifndef LOCKSTEP_LAUNCH_FLAGS_SETTINGS_H_
#define LOCKSTEP_LAUNCH_FLAGS_SETTINGS_H_

#include <map>
#include <string>

#include "lockstep/launch/flags/rendezvous_options.h"
#include "lockstep/launch/job/launch_options.h"

namespace lockstep::launch {

// A flag's value and its source: "--nproc-per-node" or "PET_NPROC_PER_NODE".
struct GivenFlag {
  std::string source, value;
};

// By the flags' names.
using GivenFlags = std::map<std::string, GivenFlag>;

// Null if the flag is not given.
inline const GivenFlag* Find(const GivenFlags& given, const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second;
}

struct Settings {
  std::map<std::string, std::string> own_environment;  // this process's; the ranks' is options.environment
  LaunchOptions options;
  RendezvousOptions rendezvous;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_SETTINGS_H_
