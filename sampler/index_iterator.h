// Iterates over the indices of a sampler, one at a time.

#ifndef LOCKSTEP_SAMPLER_INDEX_ITERATOR_H_
#define LOCKSTEP_SAMPLER_INDEX_ITERATOR_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "lockstep/sampler/sampler.h"

namespace lockstep::sampler {

// An input iterator over the indices that `sampler` has not returned yet. `sampler` must outlive it.
class IndexIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = int64_t;
  using difference_type = std::ptrdiff_t;
  using pointer = const int64_t*;
  using reference = int64_t;

  IndexIterator() = default;  // the end
  explicit IndexIterator(Sampler* sampler) : sampler_(sampler) { ++*this; }

  int64_t operator*() const { return index_; }
  IndexIterator& operator++() {
    const std::optional<std::vector<size_t>> next = sampler_->next(1);
    if (next) {
      index_ = static_cast<int64_t>(next->front());
    } else {
      sampler_ = nullptr;
    }
    return *this;
  }
  IndexIterator operator++(int) {
    const IndexIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) { return a.sampler_ == b.sampler_; }
  friend bool operator!=(const IndexIterator& a, const IndexIterator& b) { return !(a == b); }

 private:
  Sampler* sampler_ = nullptr;
  int64_t index_ = 0;
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_INDEX_ITERATOR_H_
