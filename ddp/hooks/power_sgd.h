// PowerSGD: gradients as products of two thin matrices.

#ifndef LOCKSTEP_DDP_HOOKS_POWER_SGD_H_
#define LOCKSTEP_DDP_HOOKS_POWER_SGD_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::hooks {

// What compression saved since training began. Counts one rank's gradients, in compressed steps only.
struct CompressionStatistics {
  int64_t elements_before = 0;  // of the gradients
  int64_t elements_after = 0;   // of what was all-reduced in their place
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;

  // How many times fewer elements; 0 before the first compressed step.
  double rate() const { return elements_after == 0 ? 0 : static_cast<double>(elements_before) / elements_after; }
};

// The names and defaults are those of torch.distributed's PowerSGDState.
struct PowerSgdOptions {
  // The most columns that a gradient's two factors have: 1 to 4 is usual. More is more exact, more bytes and more time.
  int64_t matrix_approximation_rank = 1;

  // The steps before it are plain all-reduces: early gradients change too fast to be approximated. A tenth of all steps
  // is a start. 0: compress from the first step on.
  int64_t start_power_sgd_iter = 1000;

  // A gradient of n rows and m columns is compressed if that makes it more than this many times smaller:
  // (n + m) * rank * min_compression_rate < n * m. Not for BatchedPowerSgd, which compresses everything.
  double min_compression_rate = 2;

  // Add what a step's approximation lost to the next step's gradients. Without it PowerSGD is biased. Costs memory of
  // the gradients' size.
  bool use_error_feedback = true;

  // Begin with the factors of the step before, not with random ones.
  bool warm_start = true;

  // Added to the norm of each column where it is divided by it. 0 is the most exact, and safe: columns of zeros stay.
  double orthogonalization_epsilon = 0;

  // Of the random factors to begin with; they are those that PyTorch draws. Must be the same on every rank.
  uint32_t random_seed = 0;

  // Counted here if set. Read it between steps only.
  std::shared_ptr<CompressionStatistics> statistics;
};

// A hook that approximates each gradient by P Q^T with one step of subspace iteration, and all-reduces the thin P and Q
// instead: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019, https://arxiv.org/abs/1905.13727.
//
//   ddp::hooks::PowerSgdOptions options;
//   options.start_power_sgd_iter = 500;
//   options.statistics = std::make_shared<ddp::hooks::CompressionStatistics>();
//   LOCKSTEP_ASSIGN_OR_RETURN(ddp::CommunicationHook hook, ddp::hooks::PowerSgd(group.get(), options));
//   ...
//   LOG(INFO) << options.statistics->rate() << " times fewer elements";
//
// A gradient of shape [n, a, b, ...] counts as a matrix of n rows and a * b * ... columns. Those not worth compressing,
// such as biases, are all-reduced as they are. Every rank gets the same bits. An average over the ranks that has no
// more than matrix_approximation_rank linearly independent rows is reproduced up to rounding.
//
// Errors and warm starts are kept for each parameter, by its name, so they survive DDP's laying out its buckets anew;
// those of a parameter whose shape, dtype or device has changed are dropped. A gradient of zeros (an unused parameter)
// is harmless; one that is not finite spoils its own step only. One hook serves one DistributedDataParallel; copies
// share their state. Its collectives: one for each bucket in the thread that runs backward, and one where the future is
// waited for; so the order is the same on all ranks, but Python ranks, which have three, cannot take part.
//
// `group`, the one that was wrapped with, must outlive the hook. Creating it is not collective; every rank must create
// it with the same options. InvalidArgument: matrix_approximation_rank below 1, start_power_sgd_iter negative,
// min_compression_rate not a positive number, orthogonalization_epsilon negative or no number.
absl::StatusOr<CommunicationHook> PowerSgd(comm::ProcessGroup* group, const PowerSgdOptions& options);

// The same with each bucket as one matrix: its gradients in a row, filled up with zeros to a square. Fewer and larger
// operations, so faster on a GPU, but a worse approximation: rows of different parameters have nothing in common. With
// another layout of the buckets the warm starts begin anew; the errors are kept.
absl::StatusOr<CommunicationHook> BatchedPowerSgd(comm::ProcessGroup* group, const PowerSgdOptions& options);

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_POWER_SGD_H_
