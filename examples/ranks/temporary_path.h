// A temporary file or folder of the ranks that a program starts.

#ifndef LOCKSTEP_EXAMPLES_RANKS_TEMPORARY_PATH_H_
#define LOCKSTEP_EXAMPLES_RANKS_TEMPORARY_PATH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::examples {

// Create it before the ranks start. The ranks of launch::Spawn run main() too, and get the same path from the
// environment. The process that created the path removes it, after its ranks have ended, so it does not stay behind if
// a rank is killed. If a launcher has started the ranks, each has its own path.
class TemporaryPath {
 public:
  // "`name`.PID" in $TMPDIR or /tmp. Creates nothing there.
  explicit TemporaryPath(absl::string_view name);
  // Removes what is there.
  ~TemporaryPath();
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_owner_ = false;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_TEMPORARY_PATH_H_
