// The C++ side of transforms_peer_test.py.
//
//   transforms_program images CASES TO    for each line of CASES, "SEED FORMAT FILE HEIGHT WIDTH STEP...", saves two
//                                         images that the steps make of the RGB bytes in FILE, one after the other
//   transforms_program dataset CASES TO   for each line, "SEED FORMAT ROOT STEP...", saves image and target of every
//                                         sample of the ImageFolder ROOT, each with the generator of SEED + its index
//
// FORMAT: one of float, normalized, byte, and "planes" or "channels_last", as in "float,planes".
// STEP: RandomResizedCrop:SIZE:SCALE:SCALE:RATIO:RATIO, RandomHorizontalFlip:P, Resize:EDGE, Resize:HEIGHT:WIDTH,
// CenterCrop:SIZE.

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_transform.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data {
namespace {

using Values = std::vector<checkpoint::Value>;

Transform Step(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ':');
  const auto number = [&](size_t i) { return std::strtod(words[i].c_str(), nullptr); };
  const auto integer = [&](size_t i) { return static_cast<int64_t>(number(i)); };
  if (words[0] == "RandomResizedCrop")
    return RandomResizedCrop(integer(1), {{number(2), number(3)}, {number(4), number(5)}});
  if (words[0] == "RandomHorizontalFlip") return RandomHorizontalFlip(number(1));
  if (words[0] == "CenterCrop") return CenterCrop(integer(1));
  return words.size() == 2 ? Resize(integer(1)) : Resize(ImageSize{integer(1), integer(2)});
}

TensorFormat Format(const std::string& text) {
  TensorFormat format;
  if (absl::StrContains(text, "byte")) format.dtype = at::kByte;
  if (absl::StrContains(text, "channels_last")) format.memory_format = at::MemoryFormat::ChannelsLast;
  if (absl::StrContains(text, "normalized")) {
    format.mean = kImageNetMean;
    format.std = kImageNetStd;
  }
  return format;
}

// The rest of `line` contains the steps.
absl::StatusOr<ImageTransform> Steps(const std::string& format, std::istream& line) {
  std::vector<Transform> steps;
  for (std::string step; line >> step;) steps.push_back(Step(step));
  return ImageTransform::Create(std::move(steps), Format(format));
}

absl::Status Image(std::istream& line, Values& values) {
  uint64_t seed;
  std::string format, file;
  ImageSize size;
  line >> seed >> format >> file >> size.height >> size.width;
  LOCKSTEP_ASSIGN_OR_RETURN(const ImageTransform transform, Steps(format, line));
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  const ImageView all = {reinterpret_cast<const uint8_t*>(bytes.data()), size.width * 3, WholeImage(size).source};
  at::Generator random = at::detail::createCPUGenerator(seed);
  for (int i = 0; i < 2; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Geometry geometry, transform.Draw(size, random));
    const at::Tensor image = transform.Empty(geometry);
    LOCKSTEP_RETURN_IF_ERROR(transform.Write(all, geometry, image));
    values.emplace_back(image.contiguous());
  }
  return absl::OkStatus();
}

absl::Status Dataset(std::istream& line, Values& values) {
  uint64_t seed;
  std::string format, root;
  line >> seed >> format >> root;
  LOCKSTEP_ASSIGN_OR_RETURN(ImageTransform transform, Steps(format, line));
  LOCKSTEP_ASSIGN_OR_RETURN(ImageFolder folder, ImageFolder::Create(root));
  LOCKSTEP_ASSIGN_OR_RETURN(const ImageDataset dataset, ImageDataset::Create(std::move(folder), std::move(transform)));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    at::Generator random = at::detail::createCPUGenerator(seed + i);
    LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::data::Example example, dataset.Get(i, random));
    values.emplace_back(example.data.contiguous());
    values.emplace_back(example.target);
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 3) return absl::InvalidArgumentError("usage: transforms_program images|dataset CASES TO");
  Values values;
  std::ifstream cases(arguments[1]);
  for (std::string text; std::getline(cases, text);) {
    std::istringstream line(text);
    LOCKSTEP_RETURN_IF_ERROR(Annotate((arguments[0] == "images" ? Image : Dataset)(line, values), text));
  }
  return checkpoint::Save(arguments[2], checkpoint::Value::List(values));
}

}  // namespace
}  // namespace lockstep::data

int main(int argc, char** argv) {
  const absl::Status status = lockstep::data::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
