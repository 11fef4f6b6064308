// Saves and resumes a run. Python's ImageNet example can read its checkpoints, and the run can resume from Python's.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_CHECKPOINTS_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_CHECKPOINTS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/run_state.h"

namespace lockstep::examples::imagenet {

// The checkpoints of one group of ranks. Every rank must call the same functions.
//
// A checkpoint has the keys of Python's example (epoch, arch, state_dict, best_acc1, optimizer, scheduler; parameter
// names have no "module." prefix), "sampler" (the position in the epoch), "virtual_ranks" (the flag's value),
// "epoch_sums" (RunState::EpochSums()), and the other entries of Learner::State(). A checkpoint of Python's example has
// no "sampler", so its epoch starts from the beginning.
class Checkpoints {
 public:
  // `state` and `group` are borrowed.
  Checkpoints(RunState& state, comm::ProcessGroup* group) : state_(state), group_(group) {}

  // Opens --checkpoint-dir, unless the run neither saves nor looks for the newest checkpoint. Errors are Manager's.
  absl::Status Open();

  // Finds the checkpoint that --resume means, and returns whether there is one. If there is none, it checks that
  // --checkpoint-dir has no later checkpoints. Call it before files are opened, which would lose their contents.
  absl::StatusOr<bool> Find();

  // Loads --pretrained and the checkpoint that Find() has found. InvalidArgument, naming the difference: the checkpoint
  // is from another arch, dataset or seed, or, unless --evaluate is given, from another number of virtual ranks. The
  // number of ranks may differ.
  absl::Status Load();

  // Saves the state if a checkpoint is due. If a rank dies before all ranks know that the file is in place, the next
  // group saves it again.
  absl::Status SaveIfDue();

 private:
  absl::Status FindNewest();
  absl::Status CheckFolderIsFree();
  absl::Status LoadPretrained();
  absl::Status LoadNewest();
  absl::Status LoadFile();
  absl::Status Resume(const std::string& path, const checkpoint::Value& file);
  absl::Status Restore(const checkpoint::Value& file);
  absl::Status RestoreSums(const checkpoint::Value& file);
  absl::StatusOr<checkpoint::Value> Contents() const;

  RunState& state_;
  comm::ProcessGroup* const group_;
  std::unique_ptr<checkpoint::Manager> manager_;      // null if Open() has opened nothing
  std::optional<checkpoint::CheckpointInfo> newest_;  // the checkpoint of --resume=auto
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_CHECKPOINTS_H_
