// An image transform, from a decoder's pixels to a tensor ready to train on.

#ifndef LOCKSTEP_DATA_IMAGE_TRANSFORM_H_
#define LOCKSTEP_DATA_IMAGE_TRANSFORM_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/image.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data {

inline constexpr std::array<double, 3> kImageNetMean = {0.485, 0.456, 0.406};
inline constexpr std::array<double, 3> kImageNetStd = {0.229, 0.224, 0.225};

struct TensorFormat {
  // kFloat: as after ToTensor() and Normalize(mean, std). kByte: 0 to 255; mean and std must keep their defaults.
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  // of batches; may be ChannelsLast
  std::array<double, 3> mean = {0, 0, 0};                         // of red, green, blue, in [0, 1]
  std::array<double, 3> std = {1, 1, 1};
};

// Equals torchvision's Compose([steps..., ToTensor(), Normalize(mean, std)]) on PIL images bit for bit, with Pillow 13.
// Earlier versions resize in another order if the height shrinks by more than twice as many pixels as the width.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageTransform train,
//                             ImageTransform::Create({RandomResizedCrop(224), RandomHorizontalFlip()},
//                                                    {.mean = kImageNetMean, .std = kImageNetStd}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageSize size, decoder.Open(bytes));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Geometry geometry, train.Draw(size, random));
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageView view, decoder.Decode(NeededSource(geometry)));
//   const at::Tensor image = train.Empty(geometry);
//   LOCKSTEP_RETURN_IF_ERROR(train.Write(view, geometry, image));
//
// The steps are combined into one pass over the needed pixels: 500 x 375 to 224 x 224 takes 0.2 ms on one core with
// AVX2. The result has the same bits without AVX2. Copies are cheap. Several threads may call everything except
// assignment at once.
class ImageTransform {
 public:
  // Runs the steps on a test image with several draws and returns their first error, so that errors appear before
  // training. InvalidArgument also: `format` is not supported, or a std is 0.
  static absl::StatusOr<ImageTransform> Create(std::vector<Transform> steps, const TensorFormat& format = {});

  // The geometry of the steps for an image of this size. `random` is a CPU generator. InvalidArgument: a step's error,
  // the image has no pixels, or your steps produced an empty window or one outside the image.
  absl::StatusOr<Geometry> Draw(ImageSize image, at::Generator& random) const;

  // A new uninitialised tensor [3, height, width] for `geometry`, with the strides of one image in a batch of the
  // format.
  at::Tensor Empty(const Geometry& geometry) const;

  // Writes `geometry` of an image to `out`. `view` must cover NeededSource(geometry). `out` is [3, height, width] of
  // the format's dtype on the CPU, with dense rows in planes or with dense channels, such as one image of a batch.
  // InvalidArgument: `out` is not such a tensor, or `view` does not cover the needed part.
  absl::Status Write(const ImageView& view, const Geometry& geometry, const at::Tensor& out) const;

 private:
  ImageTransform(std::vector<Transform> steps, const TensorFormat& format)
      : steps_(std::move(steps)), format_(format) {}

  void FillBlack(const at::Tensor& out) const;
  void Resample(const ImageView& view, const Geometry& geometry, const at::Tensor& out) const;

  std::vector<Transform> steps_;
  TensorFormat format_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_TRANSFORM_H_
