// Sharded checkpoints: every rank writes its part, and any number of ranks load the parts they need. The layout is that
// of torch.distributed.checkpoint 2.11 (DCP): Python's dcp.load reads checkpoints of SaveSharded, and LoadSharded reads
// checkpoints of dcp.save, including FSDP's and DTensor's.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ShardedStateDict state, FlattenStateDict(Value::Dict({{"model", StateDict(*model)}})));
//   state.push_back({{"embedding", "weight"}, ShardedTensor{{1024, 64}, {{{256 * rank, 0}, rows}}}});
//   LOCKSTEP_RETURN_IF_ERROR(SaveSharded("/data/step_1000", state, group.get()));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(LoadSharded("/data/step_1000", state, group.get()));  // with 3 ranks, or 300
//
// A checkpoint is a directory that all ranks see. The files "__0_0.distcp", "__1_0.distcp", ... contain a .pt archive
// for each part of a tensor and each plain value. .metadata records their positions in these files. The checkpoint
// exists once .metadata does.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_SHARDED_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_SHARDED_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// Writes `state`, in which each rank passes its parts, to `directory`, which is created if necessary. Every rank of
// `group` must call it. Without a group this process is the only rank. Blocks until the checkpoint exists.
//
// If several ranks have the same part, one of them writes it, such that all ranks write about equally many bytes. Plain
// values, and tensors in a Value, count as parts that all ranks have that pass them. Such parts must be equal to the
// bit on these ranks, which compare CRC-32s. BatchNorm's running averages are not: under DDP each rank updates its own
// in a forward. Broadcast them, or pass them on one rank. A value that differs on purpose needs a name per rank. A
// rank's memory grows by one part at a time, if it must be copied: a tensor on a device, or a view of a part of a
// larger memory.
//
// A checkpoint already in `directory` is replaced in one step, when the new .metadata replaces the old one. Until then
// the new files are beside the old ones. Afterwards the old ones are removed. (DCP overwrites them, so an interrupted
// save leaves neither checkpoint.) If a process loads the old checkpoint meanwhile, its files may disappear.
//
// All ranks return the same: OK once the checkpoint exists and, with options.sync, is on the disk; otherwise the error
// of the lowest rank that has one, with its name. After an error the previous checkpoint is unchanged and the new files
// are removed (by the next save, if rank 0 cannot write .metadata). Ranks may return different errors only if a rank
// died or the group failed; .metadata is then either the old or the new one.
//
// FailedPrecondition: rank 0 does not see the file of another rank. InvalidArgument, naming the item and the ranks: an
// item has different kinds, shapes, dtypes or contents on different ranks, or its parts overlap or do not cover it; or
// Save would reject a value. Other errors are the system's.
absl::Status SaveSharded(absl::string_view directory, const ShardedStateDict& state, comm::ProcessGroup* group,
                         const SaveOptions& options = {});

// Fills the entries of `state` from the checkpoint in `directory`, whichever number of ranks saved it. Tensors and
// parts of tensors are filled in place, on their device and with conversion to their dtype. A plain value is replaced
// by the checkpoint's. An entry that is None is replaced by the checkpoint's item, which may be a whole tensor. Other
// items of the checkpoint are not read.
//
// Each rank may pass different entries. With a group, every rank must call this, and all return the same: OK, or the
// error of the lowest rank that has one. Without a group it does not communicate. A rank reads each archive that it
// needs once, and its memory grows by the largest one. Nothing in the files is executed, and the CRC-32s of each
// archive are checked (options.verify).
//
// If `missing` is not null, an entry that the checkpoint does not have is left alone, and `missing` is set to the names
// of this rank's: as DefaultLoadPlanner(allow_partial_load=True) of DCP, for a model with new layers. Look whether it
// names all of them.
//
// If an entry cannot be filled, no tensor changes. NotFound: the name does not exist. InvalidArgument: the shape or
// kind differs. DataLoss: the checkpoint leaves out a needed part, or a file is too short. DataLoss also: an archive is
// damaged; some tensors may then be filled already. Errors name the file and the item. Returns the errors of
// ReadShardedMetadata for .metadata, and the errors of Load for archives.
absl::Status LoadSharded(absl::string_view directory, ShardedStateDict& state, comm::ProcessGroup* group,
                         const LoadOptions& options = {}, std::vector<std::string>* missing = nullptr);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_SHARDED_H_
