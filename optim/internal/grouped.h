#ifndef LOCKSTEP_OPTIM_INTERNAL_GROUPED_H_
#define LOCKSTEP_OPTIM_INTERNAL_GROUPED_H_

#include <algorithm>
#include <vector>

namespace lockstep::optim::internal {

// Divides items into groups in which `same(first, item)` holds, in the order of the first of each group.
template <typename T, typename Same>
std::vector<std::vector<T>> Grouped(const std::vector<T>& items, const Same& same) {
  std::vector<std::vector<T>> groups;
  for (const T& item : items) {
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const std::vector<T>& group) { return same(group.front(), item); });
    if (found == groups.end()) {
      groups.push_back({item});
    } else {
      found->push_back(item);
    }
  }
  return groups;
}

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_GROUPED_H_
