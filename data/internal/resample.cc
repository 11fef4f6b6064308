#include "lockstep/data/internal/resample.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/data/internal/resample_taps.h"

namespace lockstep::data::internal {
namespace {

constexpr int64_t kSlack = ResampleKernels::kSlack;

int64_t RoundUp(int64_t size) { return (size + 15) / 16 * 16; }

// Pillow 13's choice. Earlier versions resize each row first, whatever the sizes.
bool ColumnsFirst(const Geometry& geometry) {
  const int64_t rows_less = geometry.source.height - geometry.resized.height;
  const int64_t columns_less = geometry.source.width - geometry.resized.width;
  return rows_less > std::max<int64_t>(2 * columns_less, 0);
}

// The rows of `needed`, a part of the view. Kernels may read `bytes_read` bytes of each row.
class SourceRows {
 public:
  SourceRows(const ImageView& view, const Rectangle& needed, int64_t bytes_read);

  const uint8_t* Row(int64_t row) const {
    return row < safe_ ? first_ + row * stride_ : copies_.data() + (row - safe_) * bytes_;
  }

 private:
  const uint8_t* first_;
  int64_t stride_, bytes_;
  int64_t safe_;                 // rows from which a kernel may read that much
  std::vector<uint8_t> copies_;  // of the rows after these
};

SourceRows::SourceRows(const ImageView& view, const Rectangle& needed, int64_t bytes_read)
    : first_(view.pixels + (needed.top - view.covers.top) * view.stride + (needed.left - view.covers.left) * 3),
      stride_(view.stride),
      bytes_(needed.width * 3) {
  const uint8_t* const end = view.pixels + (view.covers.height - 1) * view.stride + view.covers.width * 3;
  const int64_t room = end - first_ - bytes_read;
  safe_ = room < 0 ? 0 : std::min(room / stride_ + 1, needed.height);
  if (safe_ == needed.height) return;
  copies_.resize((needed.height - safe_) * bytes_ + bytes_read);
  for (int64_t row = safe_; row < needed.height; ++row)
    std::memcpy(copies_.data() + (row - safe_) * bytes_, first_ + row * stride_, bytes_);
}

// The window's rows, one after another, in bytes.
class Resampler {
 public:
  Resampler(const ImageView& view, const Geometry& geometry, bool planar, const ResampleKernels& kernels);

  int64_t plane_stride() const { return plane_stride_; }

  // Valid until the next call. Rows must be requested from the first to the last.
  const uint8_t* Row(int64_t row) { return columns_first_ ? ColumnsThenRow(row) : RowsThenColumns(row); }

 private:
  const uint8_t* ColumnsThenRow(int64_t row);
  const uint8_t* RowsThenColumns(int64_t row);
  void Vertical(int64_t row, int64_t size, uint8_t* out);
  uint8_t* Kept(int64_t source_row) { return kept_.data() + source_row % taps_.size() * row_bytes_; }

  const ResampleKernels& kernels_;
  const Rectangle needed_;
  const bool columns_first_;
  const ResampleTaps columns_, rows_;
  const int64_t bytes_read_;  // of a row of the source, at most
  const SourceRows source_;
  const int64_t plane_stride_;  // 0: pixels are whole
  const int64_t row_bytes_;
  std::vector<uint8_t> kept_;  // the last source rows, resized, or one made of several that is still to be
  std::vector<uint8_t> row_;
  std::vector<const uint8_t*> taps_;
  int64_t next_ = 0;  // source row to keep
};

ResampleTaps Columns(const Geometry& geometry, const Rectangle& needed) {
  const Rectangle& window = geometry.window;
  ResampleTaps taps =
      BilinearTaps(geometry.source.width, geometry.resized.width, window.left, window.width, geometry.mirrored);
  for (TapSpan& span : taps.spans) span.first -= needed.left - geometry.source.left;
  return taps;
}

ResampleTaps Rows(const Geometry& geometry, const Rectangle& needed) {
  const Rectangle& window = geometry.window;
  ResampleTaps taps = BilinearTaps(geometry.source.height, geometry.resized.height, window.top, window.height);
  for (TapSpan& span : taps.spans) span.first -= needed.top - geometry.source.top;
  return taps;
}

int64_t BytesRead(const ResampleTaps& columns, const Rectangle& needed) {
  const int64_t last = std::max(columns.spans.front().first, columns.spans.back().first);
  return std::max(last + columns.groups * ResampleTaps::kGroup, needed.width) * 3 + kSlack;
}

Resampler::Resampler(const ImageView& view, const Geometry& geometry, bool planar, const ResampleKernels& kernels)
    : kernels_(kernels),
      needed_(NeededSource(geometry)),
      columns_first_(ColumnsFirst(geometry)),
      columns_(Columns(geometry, needed_)),
      rows_(Rows(geometry, needed_)),
      bytes_read_(BytesRead(columns_, needed_)),
      source_(view, needed_, bytes_read_),
      plane_stride_(planar ? RoundUp(geometry.window.width) : 0),
      row_bytes_(RoundUp(geometry.window.width) * 3 + kSlack),
      row_(row_bytes_),
      taps_(rows_.groups * ResampleTaps::kGroup) {
  kept_.resize(columns_first_ ? bytes_read_ : taps_.size() * row_bytes_);
}

// For the rows in taps_.
void Resampler::Vertical(int64_t row, int64_t size, uint8_t* out) {
  const int64_t count = rows_.spans[row].count;
  std::fill(taps_.begin() + count, taps_.end(), taps_[0]);
  kernels_.vertical(taps_.data(), rows_.weights_of(row), count, size, out);
}

const uint8_t* Resampler::ColumnsThenRow(int64_t row) {
  const TapSpan& span = rows_.spans[row];
  for (int64_t i = 0; i < span.count; ++i) taps_[i] = source_.Row(span.first + i);
  Vertical(row, needed_.width * 3, kept_.data());
  kernels_.horizontal(kept_.data(), columns_, plane_stride_, row_.data());
  return row_.data();
}

const uint8_t* Resampler::RowsThenColumns(int64_t row) {
  const TapSpan& span = rows_.spans[row];
  for (; next_ < span.first + span.count; ++next_)
    kernels_.horizontal(source_.Row(next_), columns_, plane_stride_, Kept(next_));
  for (int64_t i = 0; i < span.count; ++i) taps_[i] = Kept(span.first + i);
  Vertical(row, row_bytes_ - kSlack, row_.data());
  return row_.data();
}

using Period = std::array<float, ResampleKernels::kPeriod>;

// For the channels from `first` on, one after another, or for `first` alone.
Period Repeated(const std::array<float, 3>& values, int64_t first, int64_t channels) {
  Period period;
  for (size_t i = 0; i < period.size(); ++i) period[i] = values[first + i % channels];
  return period;
}

// Writes the channels from `first` on of a row, which are one run of `size` bytes.
class Run {
 public:
  Run(const ResampleOutput& output, int64_t first, int64_t channels, const ResampleKernels& kernels)
      : output_(output),
        kernels_(kernels),
        mean_(Repeated(output.mean, first, channels)),
        std_(Repeated(output.std, first, channels)) {}

  void Write(const uint8_t* bytes, int64_t size, int64_t element) const {
    if (output_.floats) {
      kernels_.normalize(bytes, mean_.data(), std_.data(), size, static_cast<float*>(output_.data) + element);
    } else {
      std::memcpy(static_cast<uint8_t*>(output_.data) + element, bytes, size);
    }
  }

 private:
  const ResampleOutput& output_;
  const ResampleKernels& kernels_;
  const Period mean_, std_;
};

void WritePlanar(Resampler& resampler, const Rectangle& window, const ResampleOutput& output,
                 const ResampleKernels& kernels) {
  const Run planes[] = {{output, 0, 1, kernels}, {output, 1, 1, kernels}, {output, 2, 1, kernels}};
  for (int64_t y = 0; y < window.height; ++y) {
    const uint8_t* const row = resampler.Row(y);
    for (int64_t channel = 0; channel < 3; ++channel) {
      planes[channel].Write(row + channel * resampler.plane_stride(), window.width,
                            y * output.row_stride + channel * output.plane_stride);
    }
  }
}

void WriteWhole(Resampler& resampler, const Rectangle& window, const ResampleOutput& output,
                const ResampleKernels& kernels) {
  const Run pixels(output, 0, 3, kernels);
  for (int64_t y = 0; y < window.height; ++y) pixels.Write(resampler.Row(y), window.width * 3, y * output.row_stride);
}

}  // namespace

void Resample(const ImageView& view, const Geometry& geometry, const ResampleOutput& output,
              const ResampleKernels& kernels) {
  Resampler resampler(view, geometry, output.planar, kernels);
  (output.planar ? WritePlanar : WriteWhole)(resampler, geometry.window, output, kernels);
}

}  // namespace lockstep::data::internal
