// The steps of an image transform: torchvision's crops, flips and resizes. ImageTransform (image_transform.h) runs
// them.

#ifndef LOCKSTEP_DATA_TRANSFORMS_H_
#define LOCKSTEP_DATA_TRANSFORMS_H_

#include <ATen/core/Generator.h>

#include <array>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/image.h"

namespace lockstep::data {

// A step of a transform. It changes the geometry so far, whose window is this step's input image, and draws random
// numbers if it needs them. To write your own, pass a function of this type. Several threads call it at once.
using Transform = std::function<absl::Status(Geometry& geometry, at::Generator& random)>;

// The following equal torchvision's transforms of the same names, with the same parameters and the same draws in the
// same order: from a generator in the same state they give the same crops and flips. Resizing is bilinear and
// antialiased, as in torchvision for PIL images. InvalidArgument: a parameter is out of range, or the steps together
// are not one crop, one resize and one window: an image that is already resized or mirrored cannot be resized.

struct RandomResizedCropOptions {
  std::array<double, 2> scale = {0.08, 1.0};             // fraction of the image's area
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  // width to height, before resizing
};

// A random part of the image, resized to size x size.
Transform RandomResizedCrop(int64_t size, const RandomResizedCropOptions& options = {});

// Swaps left and right with probability p.
Transform RandomHorizontalFlip(double p = 0.5);

// Resizes so that the smaller edge has the length `smaller_edge`. The other edge keeps the ratio, rounded down.
Transform Resize(int64_t smaller_edge);
Transform Resize(ImageSize size);

// The middle size x size pixels. A smaller image is padded with black.
Transform CenterCrop(int64_t size);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TRANSFORMS_H_
