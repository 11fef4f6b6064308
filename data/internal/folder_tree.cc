#include "lockstep/data/internal/folder_tree.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/python_order.h"

namespace lockstep::data::internal {
namespace {

absl::Status SystemError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

struct Entry {
  std::string name;
  unsigned char type;  // dirent's
};

using Stream = std::unique_ptr<DIR, int (*)(DIR*)>;

absl::StatusOr<Stream> Open(const std::string& folder) {
  Stream stream(opendir(folder.c_str()), closedir);
  if (!stream) return SystemError(folder, "cannot be opened");
  return stream;
}

absl::StatusOr<std::vector<Entry>> List(const std::string& folder, const Stream& stream) {
  std::vector<Entry> entries;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") entries.push_back({std::string(name), entry->d_type});
  }
  if (errno != 0) return SystemError(folder, "cannot be read");
  return entries;
}

// A broken link is not a folder. A link that cannot be followed for another reason is an error.
absl::StatusOr<bool> IsFolder(const Entry& entry, const std::string& path) {
  if (entry.type != DT_LNK && entry.type != DT_UNKNOWN) return entry.type == DT_DIR;
  struct stat found;
  if (stat(path.c_str(), &found) == 0) return S_ISDIR(found.st_mode);
  if (errno == ENOENT) return false;
  return SystemError(path, "cannot be followed");
}

struct Folder {
  std::string path;
  std::vector<std::string> files;  // names
};

// A folder on the way to the one that is read.
struct Passed {
  dev_t device;
  ino_t inode;
  std::string path;
  std::shared_ptr<const Passed> parent;  // null at the top
};

struct Pending {
  std::string path;
  std::shared_ptr<const Passed> parent;
};

// `pending`, open as `stream`, as part of the path to its contents. An error if it already is part of that path.
absl::StatusOr<std::shared_ptr<const Passed>> Pass(const Pending& pending, const Stream& stream) {
  struct stat found;
  if (fstat(dirfd(stream.get()), &found) != 0) return SystemError(pending.path, "cannot be read");
  for (const Passed* passed = pending.parent.get(); passed; passed = passed->parent.get()) {
    if (passed->device != found.st_dev || passed->inode != found.st_ino) continue;
    return absl::FailedPreconditionError(absl::StrCat(pending.path, ": a link leads back to ", passed->path,
                                                      ", a folder above it, whose files would repeat without end"));
  }
  return std::make_shared<const Passed>(Passed{found.st_dev, found.st_ino, pending.path, pending.parent});
}

// The files of `folder`. Its folders are added to `pending`.
absl::StatusOr<Folder> ReadFolder(const Pending& folder, std::vector<Pending>& pending) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Stream stream, Open(folder.path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<const Passed> passed, Pass(folder, stream));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Entry> entries, List(folder.path, stream));
  Folder read{folder.path, {}};
  for (Entry& entry : entries) {
    std::string path = JoinPath(read.path, entry.name);
    // As in os.walk(), a link that cannot be followed is a file.
    if (IsFolder(entry, path).value_or(false)) {
      pending.push_back({std::move(path), passed});
    } else {
      read.files.push_back(std::move(entry.name));
    }
  }
  return read;
}

}  // namespace

std::string JoinPath(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, folder.empty() || folder.back() == '/' ? "" : "/", name);
}

absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& folder) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Stream stream, Open(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Entry> entries, List(folder, stream));
  std::vector<std::string> names;
  for (Entry& entry : entries) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(entry, JoinPath(folder, entry.name)));
    if (is_folder) names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end(), PythonLess);
  return names;
}

absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::vector<Folder> folders;
  std::vector<Pending> pending = {{folder, nullptr}};
  while (!pending.empty()) {
    const Pending next = std::move(pending.back());
    pending.pop_back();
    LOCKSTEP_ASSIGN_OR_RETURN(folders.emplace_back(), ReadFolder(next, pending));
  }
  std::sort(folders.begin(), folders.end(),
            [](const Folder& a, const Folder& b) { return PythonLess(a.path, b.path); });
  std::vector<std::string> paths;
  for (Folder& each : folders) {
    std::sort(each.files.begin(), each.files.end(), PythonLess);
    for (const std::string& name : each.files) paths.push_back(JoinPath(each.path, name));
  }
  return paths;
}

}  // namespace lockstep::data::internal
