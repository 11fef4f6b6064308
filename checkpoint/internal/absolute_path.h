#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ABSOLUTE_PATH_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ABSOLUTE_PATH_H_

#include <string>

namespace lockstep::checkpoint::internal {

// Makes `path` absolute, for use after the program's working directory may have changed. Returns `path` if the working
// directory does not exist or `path` is empty.
std::string AbsolutePath(const std::string& path);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ABSOLUTE_PATH_H_
