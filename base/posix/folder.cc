#include "lockstep/base/posix/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {
namespace {

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::optional<FolderError> MakeFolders(const std::string& path, bool lasting) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    struct stat info;
    if (mkdir(part.c_str(), 0777) == 0) {
      if (auto failed = lasting ? FlushFolder(ParentOf(part)) : std::nullopt) return failed;
    } else {
      const int error = errno;
      if (stat(part.c_str(), &info) != 0) return FolderError{part, error};
      if (!S_ISDIR(info.st_mode)) return FolderError{part, ENOTDIR};
    }
    if (end == std::string::npos) return std::nullopt;
  }
}

std::optional<FolderError> FlushFolder(const std::string& path) {
  const UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid() && fsync(folder.get()) == 0) return std::nullopt;
  return FolderError{path, errno};
}

std::vector<std::string> NamesIn(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  std::vector<std::string> names;
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep
