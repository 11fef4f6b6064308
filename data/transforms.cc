#include "lockstep/data/transforms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"

namespace lockstep::data {
namespace {

absl::Status Invalid(absl::string_view transform, absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat(transform, ": expected ", expected, ", found ", found));
}

std::string Describe(ImageSize size) { return absl::StrCat(size.height, " x ", size.width); }

std::string Describe(const std::array<double, 2>& range) { return absl::StrCat("{", range[0], ", ", range[1], "}"); }

ImageSize SizeSoFar(const Geometry& geometry) { return {geometry.window.height, geometry.window.width}; }

bool operator==(ImageSize a, ImageSize b) { return a.height == b.height && a.width == b.width; }

// Crops to `part` of the image so far. The image may reach beyond it on each side.
void CropTo(const Rectangle& part, Geometry& geometry) {
  Rectangle& window = geometry.window;
  const int64_t left = geometry.mirrored ? window.width - part.left - part.width : part.left;
  window = {window.top + part.top, window.left + left, part.height, part.width};
}

bool IsResized(const Geometry& geometry) {
  return !(geometry.resized == ImageSize{geometry.source.height, geometry.source.width});
}

bool IsPadded(const Geometry& geometry) {
  const Rectangle visible = VisibleWindow(geometry);
  return !(ImageSize{visible.height, visible.width} == SizeSoFar(geometry));
}

absl::Status ResizeTo(ImageSize size, absl::string_view transform, Geometry& geometry) {
  if (size.height < 1 || size.width < 1) return Invalid(transform, "a positive size", Describe(size));
  if (size == SizeSoFar(geometry)) return absl::OkStatus();
  if (IsResized(geometry)) {
    return Invalid(transform, "an image that is not resized yet",
                   absl::StrCat("one that was resized to ", Describe(geometry.resized)));
  }
  if (geometry.mirrored) return Invalid(transform, "to come before flips", "a mirrored image");
  if (IsPadded(geometry)) return Invalid(transform, "an image without black around it", "one that CenterCrop padded");
  const Rectangle& source = geometry.source;
  const Rectangle& window = geometry.window;
  geometry.source = {source.top + window.top, source.left + window.left, window.height, window.width};
  geometry.resized = size;
  geometry.window = {0, 0, size.height, size.width};
  return absl::OkStatus();
}

// Rounds like Python's round().
int64_t Round(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

// Draw like torch.rand(1) and torch.randint(end, (1,)).
float Unit(at::Generator& random) {
  const std::lock_guard<std::mutex> lock(random.mutex());
  return at::uniform_real_distribution<float>(0, 1)(at::check_generator<at::CPUGeneratorImpl>(random));
}

int64_t Below(int64_t end, at::Generator& random) {
  const std::lock_guard<std::mutex> lock(random.mutex());
  return at::uniform_int_from_to_distribution<int64_t>(end, 0)(at::check_generator<at::CPUGeneratorImpl>(random));
}

// RandomResizedCrop's real numbers. They come from LibTorch's kernels, since the rounding of log, exp and uniform_
// depends on the processor for which they were compiled.
class Reals {
 public:
  explicit Reals(const RandomResizedCropOptions& options) : scale_(options.scale) {
    const at::Tensor logs = at::log(at::tensor(options.ratio, at::kFloat));
    log_ratio_ = {logs[0].item<float>(), logs[1].item<float>()};
  }

  double Scale(at::Generator& random) const { return Uniform(scale_, random).item<float>(); }
  double Ratio(at::Generator& random) const { return Uniform(log_ratio_, random).exp_().item<float>(); }

 private:
  static at::Tensor Uniform(const std::array<double, 2>& range, at::Generator& random) {
    return at::empty({1}, at::kFloat).uniform_(range[0], range[1], random);
  }

  std::array<double, 2> scale_, log_ratio_;
};

std::optional<Rectangle> RandomPart(ImageSize image, const Reals& reals, at::Generator& random) {
  const double area = static_cast<double>(image.height * image.width) * reals.Scale(random);
  const double ratio = reals.Ratio(random);
  const int64_t width = Round(std::sqrt(area * ratio));
  const int64_t height = Round(std::sqrt(area / ratio));
  if (width < 1 || width > image.width || height < 1 || height > image.height) return std::nullopt;
  const int64_t top = Below(image.height - height + 1, random);
  return Rectangle{top, Below(image.width - width + 1, random), height, width};
}

// The largest part of the image with the nearest allowed ratio.
Rectangle CentralPart(ImageSize image, const std::array<double, 2>& ratio) {
  const double image_ratio = static_cast<double>(image.width) / image.height;
  int64_t height = image.height, width = image.width;
  if (image_ratio < ratio[0]) height = Round(width / ratio[0]);
  if (image_ratio > ratio[1]) width = Round(height * ratio[1]);
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

Rectangle DrawPart(ImageSize image, const std::array<double, 2>& ratio, const Reals& reals, at::Generator& random) {
  const c10::InferenceMode no_autograd;
  for (int tries = 0; tries < 10; ++tries) {
    if (const std::optional<Rectangle> part = RandomPart(image, reals, random)) return *part;
  }
  return CentralPart(image, ratio);
}

absl::Status Check(const RandomResizedCropOptions& options) {
  const auto& [scale, ratio] = options;
  if (!(0 <= scale[0] && scale[0] <= scale[1]))
    return Invalid("RandomResizedCrop", "a scale {smallest, largest}", Describe(scale));
  if (!(0 < ratio[0] && ratio[0] <= ratio[1]))
    return Invalid("RandomResizedCrop", "a positive ratio {smallest, largest}", Describe(ratio));
  return absl::OkStatus();
}

// Divides like Python: the quotient of integers is rounded once.
int64_t LongerEdge(int64_t smaller, int64_t image_smaller, int64_t image_longer) {
  return static_cast<int64_t>(static_cast<double>(smaller * image_longer) / image_smaller);
}

// The position at which a line of `length` is cut, or the padding before it, so that `size` pixels are left.
int64_t CentralStart(int64_t length, int64_t size) {
  return length < size ? -((size - length) / 2) : Round((length - size) / 2.0);
}

}  // namespace

Transform RandomResizedCrop(int64_t size, const RandomResizedCropOptions& options) {
  return [size, options, reals = Reals(options)](Geometry& geometry, at::Generator& random) {
    LOCKSTEP_RETURN_IF_ERROR(Check(options));
    const Rectangle part = DrawPart(SizeSoFar(geometry), options.ratio, reals, random);
    if (part.height < 1 || part.width < 1)
      return Invalid("RandomResizedCrop", "a ratio that leaves pixels", Describe(SizeSoFar(geometry)));
    CropTo(part, geometry);
    return ResizeTo({size, size}, "RandomResizedCrop", geometry);
  };
}

Transform RandomHorizontalFlip(double p) {
  return [p](Geometry& geometry, at::Generator& random) {
    if (!(0 <= p && p <= 1)) return Invalid("RandomHorizontalFlip", "a probability", absl::StrCat(p));
    if (Unit(random) < static_cast<float>(p)) geometry.mirrored = !geometry.mirrored;
    return absl::OkStatus();
  };
}

Transform Resize(int64_t smaller_edge) {
  return [smaller_edge](Geometry& geometry, at::Generator&) {
    const auto [height, width] = SizeSoFar(geometry);
    const ImageSize size = width <= height ? ImageSize{LongerEdge(smaller_edge, width, height), smaller_edge}
                                           : ImageSize{smaller_edge, LongerEdge(smaller_edge, height, width)};
    return ResizeTo(size, "Resize", geometry);
  };
}

Transform Resize(ImageSize size) {
  return [size](Geometry& geometry, at::Generator&) { return ResizeTo(size, "Resize", geometry); };
}

Transform CenterCrop(int64_t size) {
  return [size](Geometry& geometry, at::Generator&) {
    if (size < 1) return Invalid("CenterCrop", "a positive size", absl::StrCat(size));
    const auto [height, width] = SizeSoFar(geometry);
    CropTo({CentralStart(height, size), CentralStart(width, size), size, size}, geometry);
    return absl::OkStatus();
  };
}

}  // namespace lockstep::data
