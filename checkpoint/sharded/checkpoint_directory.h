// The directory of a sharded checkpoint, and the names of the files in it.
//
// Rank r writes "__r_n.distcp", as DCP does, where n is a number that no file of the checkpoint there has. So the old
// checkpoint's files stay until the new .metadata has replaced the old one, in one step.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_CHECKPOINT_DIRECTORY_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_CHECKPOINT_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/sharded/metadata.h"

namespace lockstep::checkpoint::internal {

// Makes the directory and those above it where they are not there; with `sync`, such that they survive a power failure.
absl::Status MakeDirectory(const std::string& path, bool sync);

std::string NameOfFile(int rank, int number);

// The lowest number that no file of the checkpoint in `directory` has. Where the .metadata there cannot be read, the
// lowest that no file has at all.
absl::StatusOr<int> ChooseNumber(const std::string& directory);

// FailedPrecondition, naming it, where a file of `metadata` is not in `directory`: its rank wrote it elsewhere.
absl::Status CheckFiles(const std::string& directory, const ShardedMetadata& metadata);

// Removes the files that are named as a rank's and are not of `metadata`: the old checkpoint's, and what saves that
// were killed left. What cannot be removed stays; it takes room, no more.
void RemoveOthers(const std::string& directory, const ShardedMetadata& metadata);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_CHECKPOINT_DIRECTORY_H_
