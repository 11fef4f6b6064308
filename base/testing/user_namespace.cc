// Linked into a test that needs network namespaces or mounts: where an ordinary user runs the test, makes that user
// root of a user namespace before main(). Nothing outside the process changes. Where the system refuses, the test skips
// or fails as without this, and says what was refused.

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

namespace {

void Write(const char* path, const char* text) {
  if (FILE* file = fopen(path, "we")) {
    fputs(text, file);
    fclose(file);
  }
}

// A process with threads cannot enter a user namespace.
__attribute__((constructor)) void BecomeRootInUserNamespace() {
  const unsigned user = geteuid(), group = getegid();
  if (user == 0 || unshare(CLONE_NEWUSER) != 0) return;
  char map[32];
  snprintf(map, sizeof(map), "0 %u 1", user);
  Write("/proc/self/uid_map", map);
  Write("/proc/self/setgroups", "deny");  // else gid_map cannot be written
  snprintf(map, sizeof(map), "0 %u 1", group);
  Write("/proc/self/gid_map", map);
}

}  // namespace
