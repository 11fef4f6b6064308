// The directory of a sharded checkpoint, and the names of the files in it.
//
// Rank r writes "__r_n.distcp", as DCP does, where n is a number that no file of the checkpoint there has. So the old
// checkpoint's files stay until the new .metadata has replaced the old one, in one step.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHECKPOINT_DIRECTORY_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHECKPOINT_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/sharded/metadata.h"

namespace lockstep::checkpoint::internal {

std::string NameOfFile(int rank, int number);

// The lowest number that no file of the checkpoint in `directory` has. Where the .metadata there cannot be read, the
// lowest that no file has at all.
absl::StatusOr<int> ChooseNumber(const std::string& directory);

// FailedPrecondition, naming the file: a file of `metadata` is not in `directory`, since its rank wrote it elsewhere.
absl::Status CheckFiles(const std::string& directory, const ShardedMetadata& metadata);

// Removes the files with names of ranks' files that do not belong to `metadata`: files of the old checkpoint and of
// killed saves. If a file cannot be removed, it stays and only takes space.
void RemoveOthers(const std::string& directory, const ShardedMetadata& metadata);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHECKPOINT_DIRECTORY_H_
