// The state of a rank that outlives its groups of ranks.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_RUN_STATE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_RUN_STATE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/manager/preemption_notice.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/input.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/reporter.h"
#include "lockstep/examples/imagenet/step_trace.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::examples::imagenet {

// The progress of a run, equal on all ranks. After the first step it changes in RunState::Commit() only.
struct RunProgress {
  int64_t epoch = 0;            // the epoch that continues or begins here, counted from 0
  double best_acc1 = 0;         // best top-1 accuracy of a validation so far, in percent
  int64_t step = 0;             // steps of the optimizer that are done, in the whole run
  sampler::SamplerState place;  // the position in the training images
  int64_t batch_size = 0;       // batch size of a virtual rank. 0: before the first step
  bool is_reported = false;     // whether the training of this epoch is reported, after its last step
  bool is_saved = true;         // whether no checkpoint is due
  std::optional<double> acc1;   // the metric of the checkpoint that is due
};

// If a rank dies, the next group goes on with this state. A Run, its Checkpoints and its Validations end with their
// group. The world gives `progress`, `epoch_sums` and the learner's weights to a rank that comes. The other members
// belong to this process.
struct RunState {
  // Lists the images, makes the model, and makes `world` keep the state. `world` is borrowed, and must not outlive the
  // state. `shows_progress`: whether this rank prints its progress. Returns the errors of Input and Learner.
  static absl::StatusOr<std::unique_ptr<RunState>> Create(const TrainConfig& config, elastic::World& world,
                                                          bool shows_progress, c10::Device device);

  // Applies `apply`, which changes `progress` and the learner, as World::Commit() does. Every rank must call it.
  absl::Status Commit(const std::function<absl::Status()>& apply);

  // Returns to the beginning of the run.
  void Reset();

  // Ends the epoch, whose validation had the top-1 accuracy `acc1`. Call it in Commit() only.
  void EndEpoch(double acc1);

  // Adapts `epoch_sums` to another number of ranks. Without --virtual-ranks each row belongs to a rank.
  void DivideSums();

  // The sums of the epoch so far, of all ranks: a row for each virtual rank, or one row.
  at::Tensor EpochSums() const;

  // Opens the files that rank 0 writes beside checkpoints. `append` keeps the contents of the JSON file.
  absl::Status OpenFiles(bool append);
  // Closes these files. Call it also after an error, since the trace may show the reason.
  absl::Status CloseFiles();

  // Prints the images that `loader` has left out.
  void PrintSkipped(const data::Loader& loader) const;

  const TrainConfig config;
  elastic::World& world;
  const std::unique_ptr<Input> input;
  const std::unique_ptr<Learner> learner;
  RunProgress progress;
  at::Tensor epoch_sums;             // PassMeters::TakeSums() of the epoch so far, summed over the ranks
  std::optional<Reporter> reporter;  // on rank 0 only
  std::unique_ptr<StepTrace> trace;  // on the first rank 0 only. Null without --trace-file
  std::unique_ptr<checkpoint::PreemptionNotice> notice;  // null before the training
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_RUN_STATE_H_
