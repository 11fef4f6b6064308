// Work on LibTorch's own threads.

#ifndef LOCKSTEP_OPTIM_INTERNAL_PARALLEL_H_
#define LOCKSTEP_OPTIM_INTERNAL_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace lockstep::optim::internal {

// Calls `run` with parts of [0, count) at the same time, on at most at::get_num_threads() threads. Use it in place of
// at::parallel_for(), which runs on one thread where a source is compiled without OpenMP.
void InParallel(int64_t count, const std::function<void(int64_t begin, int64_t end)>& run);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_PARALLEL_H_
