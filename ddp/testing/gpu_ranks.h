// Tests of DistributedDataParallel on a GPU, with --config=cuda. Ranks are processes: threads would wait for each other
// on autograd's one thread for a GPU.

#ifndef LOCKSTEP_DDP_TESTING_GPU_RANKS_H_
#define LOCKSTEP_DDP_TESTING_GPU_RANKS_H_

#include <ATen/core/Tensor.h>

#include <functional>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp::testing {

// Runs the body in this many processes, which share the first GPU and are the ranks of an NCCL group. Expects that it
// throws in none and that none of its EXPECTs fails. The test's own process must not use CUDA before or after, or its
// children cannot.
void OnGpuRanks(int ranks, const std::function<void(comm::ProcessGroup& group)>& body);

// SeededMlp() and Batch() on the GPU.
Mlp SeededMlpOnGpu(uint64_t seed);
at::Tensor BatchOnGpu(int64_t rows, int64_t columns, int step);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_GPU_RANKS_H_
