// Compares tensors bit for bit.

#ifndef LOCKSTEP_MODELS_RECOMPUTE_TESTING_SAME_BITS_H_
#define LOCKSTEP_MODELS_RECOMPUTE_TESTING_SAME_BITS_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::models::testing {

inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// Returns the number of the first tensor whose bits differ, and -1 if none does.
inline int FirstDifference(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < std::max(found.size(), expected.size()); ++i) {
    if (i >= std::min(found.size(), expected.size()) || !SameBits(found[i], expected[i])) return static_cast<int>(i);
  }
  return -1;
}

inline void ExpectSameBits(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  EXPECT_EQ(FirstDifference(found, expected), -1);
}

}  // namespace lockstep::models::testing

#endif  // LOCKSTEP_MODELS_RECOMPUTE_TESTING_SAME_BITS_H_
