// Tests of DistributedDataParallel on a GPU, with --config=cuda. Ranks are processes there: those that are threads
// would wait for each other in the one thread that autograd has for a GPU.

#ifndef LOCKSTEP_DDP_TESTING_GPU_RANKS_H_
#define LOCKSTEP_DDP_TESTING_GPU_RANKS_H_

#include <ATen/core/Tensor.h>

#include <functional>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp::testing {

// Runs the body in so many processes, which share the first GPU and are the ranks of a group over NCCL; expects that it
// throws in none and that none of its own EXPECTs fails. The test's own process must not use CUDA, before or after: its
// children could not then.
void OnGpuRanks(int ranks, const std::function<void(comm::ProcessGroup& group)>& body);

// SeededMlp(), Batch() on the GPU.
Mlp SeededMlpOnGpu(uint64_t seed);
at::Tensor BatchOnGpu(int64_t rows, int64_t columns, int step);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_GPU_RANKS_H_
