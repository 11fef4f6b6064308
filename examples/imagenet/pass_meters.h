// Meters of a pass over images, on one rank and over all.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_PASS_METERS_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_PASS_METERS_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/imagenet/virtual_share.h"

namespace lockstep::examples::imagenet {

// The time runs from construction.
class PassMeters {
 public:
  AverageMeter time{"Time", AverageMeter::Form::kSeconds};  // time of a batch
  AverageMeter data{"Data", AverageMeter::Form::kSeconds};  // part of it spent waiting for images
  // Of the batches given to Update(), until AllReduce().
  AverageMeter loss{"Loss", AverageMeter::Form::kLoss};
  AverageMeter top1{"Acc@1", AverageMeter::Form::kPercent};
  AverageMeter top5{"Acc@5", AverageMeter::Form::kPercent};

  explicit PassMeters(const VirtualShare& share);

  // Counts a batch of one of this rank's virtual ranks for AllReduce().
  void Count(int virtual_rank, const BatchResult& result);

  // Ends a batch, and shows `result`. `waited` is the total time that the pass has waited for images so far.
  void Update(const BatchResult& result, absl::Duration waited);

  // Makes the last three meters cover what all ranks have counted. Each virtual rank's batches are summed on its rank,
  // and these sums in the order of the virtual ranks. So with --virtual-ranks the averages have the same bits on any
  // number of ranks. `group` may be null. Every rank must call it, even without batches.
  absl::Status AllReduce(comm::ProcessGroup* group);

 private:
  absl::Time last_end_ = absl::Now();
  absl::Duration waited_;
  // Float64 [virtual ranks, 4]: the number of images and the sums of the three meters. Zeros for other ranks' rows.
  at::Tensor sums_;
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_PASS_METERS_H_
