#include "lockstep/data/image_transform.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/data/internal/resample.h"

namespace lockstep::data {
namespace {

// The number of draws of Create(). An error that depends on a coin is missed only if all draws miss it.
constexpr int kTrials = 32;
constexpr ImageSize kTrialImage = {1021, 1531};

absl::Status Invalid(absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat("ImageTransform: expected ", expected, ", found ", found));
}

std::string Describe(const Rectangle& rectangle) {
  return absl::StrCat(rectangle.height, " x ", rectangle.width, " at (", rectangle.top, ", ", rectangle.left, ")");
}

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " ", c10::str(tensor.sizes()), " with strides ",
                      c10::str(tensor.strides()), " on ", tensor.device().str());
}

bool Contains(const Rectangle& outer, const Rectangle& inner) {
  return inner.top >= outer.top && inner.left >= outer.left && inner.top + inner.height <= outer.top + outer.height &&
         inner.left + inner.width <= outer.left + outer.width;
}

bool HasPixels(int64_t height, int64_t width) { return height > 0 && width > 0; }

absl::Status Check(const TensorFormat& format) {
  const TensorFormat plain;
  if (format.dtype != at::kFloat && format.dtype != at::kByte)
    return Invalid("dtype Float or Byte", c10::toString(format.dtype));
  if (format.memory_format != at::MemoryFormat::Contiguous && format.memory_format != at::MemoryFormat::ChannelsLast)
    return Invalid("memory_format Contiguous or ChannelsLast", c10::str(format.memory_format));
  for (const double std : format.std) {
    if (static_cast<float>(std) == 0) return Invalid("a std that is not 0", absl::StrCat(std));
  }
  if (format.dtype == at::kByte && (format.mean != plain.mean || format.std != plain.std))
    return Invalid("the default mean and std with dtype Byte", "others");
  return absl::OkStatus();
}

absl::Status Check(const Geometry& geometry, const Rectangle& image) {
  const auto& [source, resized, window, mirrored] = geometry;
  if (!HasPixels(source.height, source.width) || !Contains(image, source))
    return Invalid(absl::StrCat("a source inside ", Describe(image)), Describe(source));
  if (!HasPixels(resized.height, resized.width))
    return Invalid("a positive size to resize to", absl::StrCat(resized.height, " x ", resized.width));
  if (!HasPixels(window.height, window.width)) return Invalid("a window with pixels", Describe(window));
  return absl::OkStatus();
}

// Return whether rows, or pixels, have no gaps.
bool IsPlanar(const at::Tensor& out) { return out.stride(2) == 1 || out.size(2) == 1; }
bool IsWhole(const at::Tensor& out) { return out.stride(0) == 1 && out.stride(2) == 3; }

std::array<float, 3> Floats(const std::array<double, 3>& values) {
  return {static_cast<float>(values[0]), static_cast<float>(values[1]), static_cast<float>(values[2])};
}

}  // namespace

absl::StatusOr<ImageTransform> ImageTransform::Create(std::vector<Transform> steps, const TensorFormat& format) {
  LOCKSTEP_RETURN_IF_ERROR(Check(format));
  ImageTransform transform(std::move(steps), format);
  at::Generator random = at::detail::createCPUGenerator(0);
  for (int i = 0; i < kTrials; ++i) LOCKSTEP_RETURN_IF_ERROR(transform.Draw(kTrialImage, random).status());
  return transform;
}

absl::StatusOr<Geometry> ImageTransform::Draw(ImageSize image, at::Generator& random) const {
  if (!HasPixels(image.height, image.width))
    return Invalid("an image with pixels", absl::StrCat(image.height, " x ", image.width));
  Geometry geometry = WholeImage(image);
  absl::Status status;
  const auto apply = [&] {
    for (const Transform& step : steps_)
      if (status.ok()) status = step(geometry, random);
  };
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("ImageTransform", apply));
  LOCKSTEP_RETURN_IF_ERROR(status);
  LOCKSTEP_RETURN_IF_ERROR(Check(geometry, WholeImage(image).source));
  return geometry;
}

at::Tensor ImageTransform::Empty(const Geometry& geometry) const {
  const int64_t height = geometry.window.height, width = geometry.window.width;
  return at::empty({1, 3, height, width}, format_.dtype, std::nullopt, std::nullopt, std::nullopt,
                   format_.memory_format)[0];
}

absl::Status ImageTransform::Write(const ImageView& view, const Geometry& geometry, const at::Tensor& out) const {
  const Rectangle& window = geometry.window;
  if (out.sizes() != at::IntArrayRef{3, window.height, window.width} || out.scalar_type() != format_.dtype ||
      !out.is_cpu() || !(IsPlanar(out) || IsWhole(out))) {
    return Invalid(absl::StrCat("a dense ", c10::toString(format_.dtype), " [3, ", window.height, ", ", window.width,
                                "] on cpu to write to"),
                   Describe(out));
  }
  const Rectangle visible = VisibleWindow(geometry), needed = NeededSource(geometry);
  if (!Contains(visible, window)) FillBlack(out);
  if (visible.height == 0) return absl::OkStatus();
  if (!Contains(view.covers, needed))
    return Invalid(absl::StrCat("pixels of ", Describe(needed)), Describe(view.covers));
  Geometry inside = geometry;
  inside.window = visible;
  const int64_t right = window.left + window.width - visible.left - visible.width;
  const int64_t left = geometry.mirrored ? right : visible.left - window.left;
  Resample(view, inside, out.narrow(1, visible.top - window.top, visible.height).narrow(2, left, visible.width));
  return absl::OkStatus();
}

void ImageTransform::FillBlack(const at::Tensor& out) const {
  const std::array<float, 3> mean = Floats(format_.mean), std = Floats(format_.std);
  for (int64_t i = 0; i < 3; ++i) out[i].fill_((0 - mean[i]) / std[i]);
}

void ImageTransform::Resample(const ImageView& view, const Geometry& geometry, const at::Tensor& out) const {
  internal::ResampleOutput output;
  output.data = out.data_ptr();
  output.floats = format_.dtype == at::kFloat;
  output.planar = IsPlanar(out);
  output.row_stride = out.stride(1);
  output.plane_stride = out.stride(0);
  output.mean = Floats(format_.mean);
  output.std = Floats(format_.std);
  internal::Resample(view, geometry, output);
}

}  // namespace lockstep::data
