// The name of this host.

#ifndef LOCKSTEP_BASE_POSIX_HOST_NAME_H_
#define LOCKSTEP_BASE_POSIX_HOST_NAME_H_

#include <limits.h>
#include <unistd.h>

#include <string>

namespace lockstep {

// gethostname(), or "localhost" where the host has no name.
inline std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_HOST_NAME_H_
