#include "lockstep/checkpoint/internal/elements.h"

#include <cstddef>

namespace lockstep::checkpoint::internal {
namespace {

// The integer type of the same size, in which any tensor can be copied.
at::ScalarType BitsType(size_t size) {
  switch (size) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return at::kComplexDouble;
  }
}

}  // namespace

at::Tensor Elements(const at::Tensor& tensor) {
  const at::Tensor detached = tensor.detach().resolve_conj().resolve_neg();
  return detached.view(BitsType(tensor.element_size())).contiguous().cpu();
}

}  // namespace lockstep::checkpoint::internal
