// Programs in one pass over memory: every instruction is carried out on a block of a tensor before the next block is
// read, so intermediate results stay in the first-level cache. All tensors are one range, which threads share.

#ifndef LOCKSTEP_OPTIM_INTERNAL_BLOCKS_H_
#define LOCKSTEP_OPTIM_INTERNAL_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "lockstep/optim/internal/program.h"

namespace lockstep::optim::internal {

// The number of elements of a block. With 1 or 2 KiB for each tensor, a block and the next one, which is fetched
// meanwhile, fit into a first-level cache of 32 KiB.
inline constexpr int64_t kBlock = 256;

// Returns true if RunBlocks() can run the task: its tensors are dense CPU tensors of float or double, with the same
// shape and strides.
bool FitsBlocks(const Task& task);

// Runs tasks that fit. Rounds every element as ATen's CPU operators do, for any number of threads and any instructions
// that the processor has.
void RunBlocks(const std::vector<Task*>& tasks, Instructions instructions = WidestInstructions());

// Runs each task in the fastest way with its bits: by RunBlocks() if it fits, else by RunForeach() if `foreach` and the
// gradient is not sparse, else by RunAten().
void Run(std::vector<Task>& tasks, bool foreach);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_BLOCKS_H_
