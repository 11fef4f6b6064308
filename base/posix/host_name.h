// The name of this host, for messages.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_HOST_NAME_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_HOST_NAME_H_

#include <limits.h>
#include <unistd.h>

#include <string>

namespace lockstep::launch::internal {

inline std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_HOST_NAME_H_
