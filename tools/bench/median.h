#ifndef LOCKSTEP_TOOLS_BENCH_MEDIAN_H_
#define LOCKSTEP_TOOLS_BENCH_MEDIAN_H_

#include <algorithm>
#include <vector>

namespace lockstep {

// Returns the median; of an even number of values, the upper one of the two in the middle. There must be a value.
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_MEDIAN_H_
