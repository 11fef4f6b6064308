// Sharded checkpoints: every rank writes its part, and any number of ranks load it again, each what it wants of it. The
// layout is that of torch.distributed.checkpoint 2.11 (DCP), so Python's dcp.load reads what SaveSharded wrote, and
// LoadSharded what dcp.save wrote, of FSDP's and DTensor's too.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ShardedStateDict state, FlattenStateDict(Value::Dict({{"model", StateDict(*model)}})));
//   state.push_back({{"embedding", "weight"}, ShardedTensor{{1024, 64}, {{{256 * rank, 0}, rows}}}});
//   LOCKSTEP_RETURN_IF_ERROR(SaveSharded("/data/step_1000", state, group.get()));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(LoadSharded("/data/step_1000", state, group.get()));  // with 3 ranks, or 300
//
// A checkpoint is a directory that all ranks see: "__0_0.distcp", "__1_0.distcp", ... with a .pt archive for each part
// of a tensor and each plain value, and .metadata, which says where in these files they are. It is there when .metadata
// is.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_SHARDED_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_SHARDED_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// Writes `state`, of which every rank gives what it has, to `directory`, which is made if need be. Every rank of
// `group` must call it; without a group this process is the only one. Blocks until the checkpoint is there.
//
// Each part is written once, however many ranks have it, by one of those that have it, so that all write about as many
// bytes (plain values, and tensors in a Value, are a part that all ranks have). A rank's memory grows by the part that
// it copies: one on a device, or one that shows a piece of a larger memory.
//
// A checkpoint that is in `directory` is replaced in one step, when the new .metadata takes the place of the old; until
// then the new files stand beside the old ones, and afterwards the old ones are removed. (DCP writes over them, so that
// a save that is cut short leaves neither.) Who loads the old one meanwhile may find its files gone.
//
// All ranks return the same: OK when the checkpoint is there and, with options.sync, on the disk; or the error of the
// lowest rank that has one, by its name, and then the previous checkpoint is as it was and the new files are removed
// (where rank 0 cannot write .metadata, by the next save). FailedPrecondition: rank 0 does not see another's file. Only
// where a rank died or the group failed may ranks differ; then .metadata is the old one or the new one.
// InvalidArgument: what the ranks have does not fit together, naming the item and the ranks: an item of different
// kinds, shapes or dtypes, parts that overlap or leave something out; or what Save refuses. Others: what the system
// said.
absl::Status SaveSharded(absl::string_view directory, const ShardedStateDict& state, comm::ProcessGroup* group,
                         const SaveOptions& options = {});

// Fills what `state` wants from the checkpoint in `directory`, whoever saved it and on how many ranks: tensors and
// parts of tensors in place, with conversion to their dtype, wherever they are; plain values by what the checkpoint
// has. An entry that is None becomes what is there, a whole tensor too. What the checkpoint has beside these is not
// read.
//
// Ranks may want different things. With a group every rank of it must call this, and all return the same: OK, or the
// error of the lowest rank that has one. Without, it is this process's own affair. A rank reads each archive that holds
// something of what it wants once, and its memory grows by the largest. Nothing in the files is executed, and each
// archive's CRC-32s are checked (options.verify).
//
// Where a rank's wish cannot be met, no tensor is touched: NotFound for a name that is not there, InvalidArgument for
// another shape or kind, DataLoss for what the checkpoint leaves out, or for a file that is shorter than it must be. An
// archive that is damaged is DataLoss too, and then tensors may be filled in part. Errors name the file and the item;
// those of .metadata are ReadShardedMetadata's, those of archives Load's.
absl::Status LoadSharded(absl::string_view directory, ShardedStateDict& state, comm::ProcessGroup* group,
                         const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_SHARDED_H_
