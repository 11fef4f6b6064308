// torchvision's transforms of images, from a decoder's pixels to a tensor ready to train on.

#ifndef LOCKSTEP_DATA_TRANSFORMS_H_
#define LOCKSTEP_DATA_TRANSFORMS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/image.h"

namespace lockstep::data {

// A step of where an image's pixels go: continues from the geometry so far, whose window is the image to this step, and
// draws what is random. One of your own is a function like this; several threads call it at once.
using Transform = std::function<absl::Status(Geometry& geometry, at::Generator& random)>;

// The following are torchvision's of the same names, with its parameters and its draws in its order: from a generator
// in the state of Python's they give the same crops and flips. What resizes is bilinear and antialiased, as torchvision
// on PIL images is. Their errors are InvalidArgument: a parameter is out of its range, or what is asked for is not one
// crop, one resize and one window of it: an image that is resized already or mirrored cannot be resized.

struct RandomResizedCropOptions {
  std::array<double, 2> scale = {0.08, 1.0};             // of the image's area
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  // of width to height, before it is resized
};

// A random part of the image, resized to size x size.
Transform RandomResizedCrop(int64_t size, const RandomResizedCropOptions& options = {});

// Exchanges left and right with probability p.
Transform RandomHorizontalFlip(double p = 0.5);

// Resizes so that the smaller edge is `smaller_edge` long; the other keeps the ratio, rounded down.
Transform Resize(int64_t smaller_edge);
Transform Resize(ImageSize size);

// The size x size pixels in the middle, with black around an image that is smaller.
Transform CenterCrop(int64_t size);

inline constexpr std::array<double, 3> kImageNetMean = {0.485, 0.456, 0.406};
inline constexpr std::array<double, 3> kImageNetStd = {0.229, 0.224, 0.225};

struct TensorFormat {
  // kFloat: what ToTensor() and Normalize(mean, std) give. kByte: 0 to 255, for which mean and std stay as they are
  // here.
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  // of batches; or ChannelsLast
  std::array<double, 3> mean = {0, 0, 0};                         // of red, green, blue, in [0, 1]
  std::array<double, 3> std = {1, 1, 1};
};

// torchvision's Compose([steps..., ToTensor(), Normalize(mean, std)]) of PIL images, to the bit: of Pillow 13, since
// earlier ones resize in another order where height shrinks by more than twice as many pixels as width does.
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
// The steps become one pass over the pixels that are needed: 0.2 ms for 500 x 375 to 224 x 224, on one core with AVX2,
// and the same bits without. Copies are cheap. Everything but assignment may be called by several threads at once.
class ImageTransform {
 public:
  // Tries the steps on an image in some draws, and returns what they return, so that what cannot work is known before
  // training. InvalidArgument: also where `format` is none of the above, or a std is 0.
  static absl::StatusOr<ImageTransform> Create(std::vector<Transform> steps, const TensorFormat& format = {});

  // What the steps make of an image of that size. `random` is a generator for the CPU. InvalidArgument: a step's own
  // error; or the image has no pixels, or steps of yours left the image or an empty window.
  absl::StatusOr<Geometry> Draw(ImageSize image, at::Generator& random) const;

  // A new tensor [3, height, width] for it, not initialised, with the strides of an image in a batch of the format.
  at::Tensor Empty(const Geometry& geometry) const;

  // Writes `geometry` of an image, of which `view` covers NeededSource(geometry), to `out`: [3, height, width] of the
  // format's dtype on the CPU, in planes with dense rows or with dense channels, such as an image of a batch.
  // InvalidArgument: it is not that, or `view` does not cover what is needed.
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

#endif  // LOCKSTEP_DATA_TRANSFORMS_H_
