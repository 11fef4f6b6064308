// The figures that the trainers print, over all ranks. With virtual ranks they have the same bits on any number of
// ranks.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_METRICS_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_METRICS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/examples/fashion_mnist/net.h"

namespace lockstep::examples {

// The mean of the losses of all virtual ranks. Row v of `losses`, float64 [virtual ranks, 2], has the sum and the
// number of virtual rank v's losses on the one rank that trains for it, and zeros on the others. So the sum over the
// ranks is exact. Every rank must call it.
absl::StatusOr<double> MeanLoss(const at::Tensor& losses, comm::ProcessGroup* group);

// The share of the test images that `net` classifies correctly. The images are divided among `parts` virtual ranks, so
// that batches do not depend on the ranks, and each image counts once. Every rank must call it.
absl::StatusOr<double> TestAccuracy(Net& net, const data::FashionMnist& test, int parts, comm::ProcessGroup* group);

// The titles of EpochRow()'s columns.
constexpr char kEpochHeading[] = "epoch   train loss   test accuracy    images/s   seconds";

// A row of the printed table. `epoch` counts from 0; `images` were trained on in `time`.
std::string EpochRow(int64_t epoch, double loss, double accuracy, int64_t images, absl::Duration time);

// The last line.
std::string ResultLine(double accuracy, int64_t epochs);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_METRICS_H_
