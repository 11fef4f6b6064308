#include "lockstep/data/image_folder.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/folder_tree.h"

namespace lockstep::data {
namespace {

constexpr size_t kClassesNamed = 5;

bool IsValid(const std::string& path, const ImageFolderOptions& options) {
  if (options.is_valid_file) return options.is_valid_file(path);
  const std::string lower = absl::AsciiStrToLower(path);
  return std::any_of(options.extensions.begin(), options.extensions.end(),
                     [&](const std::string& extension) { return absl::EndsWith(lower, extension); });
}

absl::Status EmptyClasses(absl::string_view root, const ImageFolderOptions& options,
                          const std::vector<std::string>& empty) {
  const size_t named = std::min(empty.size(), kClassesNamed);
  return absl::NotFoundError(absl::StrCat(
      root, ": expected in each class's folder a file ",
      options.is_valid_file ? "that is_valid_file accepts" : absl::StrJoin(options.extensions, ", "),
      ", found none for ", empty.size(), " classes: ", absl::StrJoin(empty.begin(), empty.begin() + named, ", "),
      empty.size() > named ? ", ..." : ""));
}

}  // namespace

absl::StatusOr<ImageFolder> ImageFolder::Create(absl::string_view root, const ImageFolderOptions& options) {
  ImageFolder result;
  LOCKSTEP_ASSIGN_OR_RETURN(result.classes_, internal::FoldersIn(std::string(root)));
  if (result.classes_.empty()) {
    return absl::NotFoundError(absl::StrCat(root, ": expected a folder for each class, found no folder"));
  }
  std::vector<std::string> empty;
  for (const std::string& name : result.classes_) {
    const int64_t target = result.class_to_idx_.size();
    result.class_to_idx_[name] = target;
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                              internal::FilesBelow(internal::JoinPath(std::string(root), name)));
    const size_t before = result.samples_.size();
    for (std::string& path : paths) {
      if (IsValid(path, options)) result.samples_.push_back({std::move(path), target});
    }
    if (result.samples_.size() == before) empty.push_back(name);
  }
  if (!empty.empty() && !options.allow_empty) return EmptyClasses(root, options, empty);
  return result;
}

}  // namespace lockstep::data
