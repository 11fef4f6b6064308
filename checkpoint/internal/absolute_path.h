#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ABSOLUTE_PATH_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ABSOLUTE_PATH_H_

#include <string>

namespace lockstep::checkpoint::internal {

// `path` from the root, for what is used later, when the program's working directory may be another. As it is where the
// working directory is gone, or `path` is empty.
std::string AbsolutePath(const std::string& path);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ABSOLUTE_PATH_H_
