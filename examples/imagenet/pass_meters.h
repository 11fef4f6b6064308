// Meters of a pass over images, on one rank and over all.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_PASS_METERS_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_PASS_METERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/meters.h"

namespace lockstep::examples::imagenet {

// The time runs from construction.
class PassMeters {
 public:
  AverageMeter time{"Time", AverageMeter::Form::kSeconds};  // time of a batch
  AverageMeter data{"Data", AverageMeter::Form::kSeconds};  // part of it spent waiting for images
  // Of the batches given to Update(), until Show().
  AverageMeter loss{"Loss", AverageMeter::Form::kLoss};
  AverageMeter top1{"Acc@1", AverageMeter::Form::kPercent};
  AverageMeter top5{"Acc@5", AverageMeter::Form::kPercent};

  // `parts`: the number of virtual ranks, or of ranks without them.
  explicit PassMeters(int64_t parts);

  // Counts a batch of one of this rank's virtual ranks for TakeSums().
  void Count(int64_t virtual_rank, const BatchResult& result);

  // Ends a batch, and shows `result`. `waited` is the total time that the pass has waited for images so far.
  void Update(const BatchResult& result, absl::Duration waited);

  // The counts since the last call. Float64 [virtual ranks, 4]: the number of images and the sums of the last
  // three meters, with zeros in the rows of other ranks. So the sum of all ranks' has the rows of all virtual ranks, and
  // with --virtual-ranks the same bits on any number of ranks.
  at::Tensor TakeSums();

  // Makes the last three meters cover `sums`, whose rows are added up in their order.
  void Show(const at::Tensor& sums);

 private:
  absl::Time last_end_ = absl::Now();
  absl::Duration waited_;
  at::Tensor sums_;  // for TakeSums()
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_PASS_METERS_H_
