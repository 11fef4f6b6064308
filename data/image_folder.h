// Which images a tree of folders holds, one folder a class, as torchvision's ImageFolder finds them.

#ifndef LOCKSTEP_DATA_IMAGE_FOLDER_H_
#define LOCKSTEP_DATA_IMAGE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data {

struct ImageFolderOptions {
  // Of the files that are samples, in lower case; theirs may be in any. ASCII.
  std::vector<std::string> extensions = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
  // If given, it says from its path whether a file is a sample, and extensions have no say.
  std::function<bool(absl::string_view path)> is_valid_file = nullptr;
  // Whether a class may have no samples.
  bool allow_empty = false;
};

// The samples of root/CLASS/.../FILE, listed and not read: classes, paths and their order are those of
// torchvision.datasets.ImageFolder, so an index, and a sampler's order, mean the same image there and here.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto train, ImageFolder::Create("imagenet/train"));
//   for (const ImageFolder::Sample& sample : train.samples()) Show(sample.path, train.classes()[sample.target]);
//
// Classes are the folders in root, links to folders too, sorted by name. A class's samples are the files below it with
// one of the extensions: folders in order of their paths, a folder's files in order of their names, both as Python
// sorts strings. Links to folders are followed. A link back to a folder that it lies in is an error here; torchvision
// lists the samples behind it 40 times. What is not a folder is a file, broken links and FIFOs too: reading such a
// sample is an error.
//
// Copies are as large as the list: about 100 bytes a sample and its path.
class ImageFolder {
 public:
  struct Sample {
    std::string path;
    int64_t target = 0;  // index of its class
  };

  // Reads the folders: 0.5 s of processor time for 260,000 files whose folders the system has cached. A ~ in front of
  // `root` is not expanded.
  //
  // NotFound: there is no root, no folder in it, or no sample in a class's folder; the message lists the first five
  // such classes. FailedPrecondition: a link leads back to a folder that it lies in. Else what opening or reading the
  // folder that it names met (PermissionDenied, ...): no part of the tree is left out in silence, as Python's os.walk()
  // would.
  static absl::StatusOr<ImageFolder> Create(absl::string_view root, const ImageFolderOptions& options = {});

  const std::vector<std::string>& classes() const { return classes_; }
  const absl::flat_hash_map<std::string, int64_t>& class_to_idx() const { return class_to_idx_; }
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  ImageFolder() = default;

  std::vector<std::string> classes_;
  absl::flat_hash_map<std::string, int64_t> class_to_idx_;
  std::vector<Sample> samples_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_FOLDER_H_
