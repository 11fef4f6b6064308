// SaveSharded over a file system that a test may make fail.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVER_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVER_H_

#include <string>

#include "absl/status/status.h"
#include "lockstep/checkpoint/file/file_system.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint::internal {

absl::Status SaveShardedOver(file::FileSystem& system, const std::string& directory, const ShardedStateDict& state,
                             comm::ProcessGroup* group, const SaveOptions& options);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVER_H_
