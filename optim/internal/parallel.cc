#include "lockstep/optim/internal/parallel.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

namespace lockstep::optim::internal {

// An elementwise loop of LibTorch's, which was compiled with OpenMP, over a tensor of `count` bytes. The place of an
// element is its number.
void InParallel(int64_t count, const std::function<void(int64_t begin, int64_t end)>& run) {
  if (count == 0) return;
  const at::Tensor bytes = at::empty({count}, at::kByte);
  const char* const first = static_cast<const char*>(bytes.const_data_ptr());
  at::TensorIterator::borrowing_nullary_op(bytes).for_each(
      [&](char** data, const int64_t*, int64_t size) { run(data[0] - first, data[0] - first + size); },
      /*grain_size=*/1);
}

}  // namespace lockstep::optim::internal
