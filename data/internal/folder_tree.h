// Lists folders in the order of Python's os.walk() and sorted().

#ifndef LOCKSTEP_DATA_INTERNAL_FOLDER_TREE_H_
#define LOCKSTEP_DATA_INTERNAL_FOLDER_TREE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::data::internal {

// `name` in `folder`, as Python's os.path.join() writes it.
std::string JoinPath(const std::string& folder, const std::string& name);

// The names of the folders in `folder`, links to folders too, sorted. An error names the path.
absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& folder);

// The paths of everything below `folder` that is not a folder. Links are followed. Sorted by the path of the containing
// folder, then by name. An error names the folder that could not be read. FailedPrecondition: a link leads back to a
// folder above it; the error names both.
absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_FOLDER_TREE_H_
