// Whether a vector has a value.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_CONTAINS_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_CONTAINS_H_

#include <algorithm>
#include <vector>

namespace lockstep::launch::internal {

template <typename T>
bool Contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_CONTAINS_H_
