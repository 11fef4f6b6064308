#include "lockstep/fsdp/internal/flat_boxes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep::fsdp::internal {
namespace {

class Cutter {
 public:
  explicit Cutter(const std::vector<int64_t>& sizes) : sizes_(sizes), offsets_(sizes.size(), 0), inner_(sizes.size()) {
    int64_t inner = 1;
    for (size_t d = sizes.size(); d-- > 0; inner *= sizes[d]) inner_[d] = inner;
  }

  // Elements [begin, end) of the tensor of the dimensions from `d` on, at `offsets_` of the dimensions before.
  // `place`: where that tensor begins in the whole one.
  void Cut(size_t d, int64_t begin, int64_t end, int64_t place) {
    if (begin == end) return;
    if (d == sizes_.size()) return Add(d, 0, 1, place);
    const int64_t inner = inner_[d];
    int64_t row = begin / inner;
    if (row * inner != begin || end < (row + 1) * inner) {
      const int64_t first_end = std::min(end, (row + 1) * inner);
      offsets_[d] = row;
      Cut(d + 1, begin - row * inner, first_end - row * inner, place + row * inner);
      offsets_[d] = 0;
      if (first_end == end) return;
      ++row;
    }
    const int64_t rows = end / inner - row;
    if (rows > 0) Add(d, row, rows, place + row * inner);
    offsets_[d] = row + rows;
    Cut(d + 1, 0, end - (row + rows) * inner, place + (row + rows) * inner);
    offsets_[d] = 0;
  }

  std::vector<FlatBox> Finish() && { return std::move(boxes_); }

 private:
  // `rows` rows of dimension `d`.
  void Add(size_t d, int64_t row, int64_t rows, int64_t place) {
    FlatBox& added = boxes_.emplace_back();
    added.begin = place;
    added.box.offsets = offsets_;
    added.box.sizes = sizes_;
    for (size_t outer = 0; outer < d; ++outer) added.box.sizes[outer] = 1;
    if (d == sizes_.size()) return;
    added.box.offsets[d] = row;
    added.box.sizes[d] = rows;
  }

  const std::vector<int64_t>& sizes_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> inner_;  // the number of elements of a row of each dimension
  std::vector<FlatBox> boxes_;
};

}  // namespace

std::vector<FlatBox> BoxesOf(const std::vector<int64_t>& sizes, int64_t begin, int64_t end) {
  Cutter cutter(sizes);
  cutter.Cut(0, begin, end, 0);
  return std::move(cutter).Finish();
}

}  // namespace lockstep::fsdp::internal
