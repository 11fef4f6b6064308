// PowerSGD: all-reduces gradients as products of two thin matrices.

#ifndef LOCKSTEP_DDP_HOOKS_POWER_SGD_H_
#define LOCKSTEP_DDP_HOOKS_POWER_SGD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::hooks {

// The savings of compression since training began. Counts the gradients of one rank, in compressed steps only.
struct CompressionStatistics {
  int64_t elements_before = 0;  // of the gradients
  int64_t elements_after = 0;   // all-reduced in place of the gradients
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;

  // How many times fewer elements are exchanged; 0 before the first compressed step.
  double rate() const {
    return elements_after == 0 ? 0 : static_cast<double>(elements_before) / static_cast<double>(elements_after);
  }
};

// The state that a hook remembers from step to step, for a checkpoint: see power_sgd_value.h. Everything but `errors`
// is equal on all ranks.
struct PowerSgdState {
  int64_t iteration = 0;                     // steps so far
  int64_t starts_drawn = 0;                  // random starts drawn so far, by random_seed
  std::map<std::string, at::Tensor> errors;  // of the last approximation, by parameter
  // Warm starts, by parameter, or by bucket for BatchedPowerSgd: the factor of the last step, and the random columns
  // that it began with.
  std::map<std::string, at::Tensor> qs;
  std::map<std::string, at::Tensor> starts;
};

// Names and defaults are the same as in torch.distributed's PowerSGDState.
struct PowerSgdOptions {
  // The maximum number of columns of a gradient's two factors, usually 1 to 4. A larger number is more exact, but takes
  // more bytes and time.
  int64_t matrix_approximation_rank = 1;

  // The number of first steps with plain all-reduces, since early gradients change too fast to be approximated. A tenth
  // of all steps is a good start. 0: compress from the first step on.
  int64_t start_power_sgd_iter = 1000;

  // A gradient of n rows and m columns is compressed only if this makes it more than this many times smaller: (n + m) *
  // rank * min_compression_rate < n * m. Ignored by BatchedPowerSgd, which compresses everything.
  double min_compression_rate = 2;

  // Adds the error of a step's approximation to the next step's gradients. Without it PowerSGD is biased. Takes as much
  // memory as the gradients.
  bool use_error_feedback = true;

  // Starts from the factors of the previous step instead of random ones.
  bool warm_start = true;

  // Added to the norm of each column before dividing by it. 0 is the most exact, and is safe: columns of zeros stay
  // zero.
  double orthogonalization_epsilon = 0;

  // Seed of the initial random factors. They equal the factors that PyTorch draws. Must be the same on every rank.
  uint32_t random_seed = 0;

  // If set, compression is counted here. Read it between steps only.
  std::shared_ptr<CompressionStatistics> statistics;

  // If set, the hook begins with this state and keeps it up to date. Read it between steps only. If it is that of a
  // hook with the same options and group, training continues to the same bits.
  std::shared_ptr<PowerSgdState> state;
};

// Creates a hook that approximates each gradient by P Q^T with one step of subspace iteration, and all-reduces the thin
// P and Q instead. T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019, https://arxiv.org/abs/1905.13727.
//
//   ddp::hooks::PowerSgdOptions options;
//   options.start_power_sgd_iter = 500;
//   options.statistics = std::make_shared<ddp::hooks::CompressionStatistics>();
//   LOCKSTEP_ASSIGN_OR_RETURN(ddp::CommunicationHook hook, ddp::hooks::PowerSgd(group.get(), options));
//   ...
//   LOG(INFO) << options.statistics->rate() << " times fewer elements";
//
// A gradient of shape [n, a, b, ...] is a matrix of n rows and a * b * ... columns. Gradients not worth compressing,
// such as the gradients of biases, are all-reduced uncompressed. Every rank gets the same bits. If the average over the
// ranks has at most matrix_approximation_rank linearly independent rows, the result equals it up to rounding.
//
// Errors and warm starts are kept by parameter name, so they survive a new layout of DDP's buckets. If a parameter's
// shape, dtype or device changes, they are dropped. A gradient of zeros (an unused parameter) is handled. A gradient
// that is not finite affects only its own step. One hook serves one DistributedDataParallel, and copies share their
// state. For each bucket it makes one collective on the thread that runs backward, and one when the future is waited
// for, so the order is the same on all ranks. Python ranks make three and cannot be in the group.
//
// `group` must be the group with which the module was wrapped, and must outlive the hook. Creating the hook is not
// collective, but every rank must create it with the same options. InvalidArgument: matrix_approximation_rank is below
// 1, start_power_sgd_iter is negative, min_compression_rate is not a positive number, or orthogonalization_epsilon is
// negative or NaN.
absl::StatusOr<CommunicationHook> PowerSgd(comm::ProcessGroup* group, const PowerSgdOptions& options);

// Like PowerSgd(), with each bucket as one matrix: its gradients in a row, padded with zeros to a square. It needs
// fewer and larger operations, so it is faster on a GPU. The approximation is worse, since rows of different parameters
// are unrelated. If the layout of the buckets changes, warm starts are reset and errors are kept.
absl::StatusOr<CommunicationHook> BatchedPowerSgd(comm::ProcessGroup* group, const PowerSgdOptions& options);

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_POWER_SGD_H_
