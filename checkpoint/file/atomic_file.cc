#include "lockstep/checkpoint/file/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::file {
namespace {

constexpr size_t kRandomDigits = 16;

// Temporaries are this and kRandomDigits hexadecimal digits. Cut so that a long name leaves room for them.
std::string TemporaryPrefix(const std::string& name) { return absl::StrCat(".", name.substr(0, 200), ".lockstep-"); }

bool IsTemporary(absl::string_view name, absl::string_view prefix) {
  if (!absl::StartsWith(name, prefix) || name.size() != prefix.size() + kRandomDigits) return false;
  return name.find_first_not_of("0123456789abcdef", prefix.size()) == absl::string_view::npos;
}

absl::Status SystemError(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

// Removes the file unless its writer is alive, which holds a lock on it.
void RemoveUnlessLocked(FileSystem& system, int directory, const char* name) {
  const int file = system.Open(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (file < 0) return;
  if (system.Lock(file, LOCK_EX | LOCK_NB) == 0) system.Unlink(directory, name);
  system.Close(file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, bool sync, FileSystem& system) {
  std::unique_ptr<AtomicFile> file(new AtomicFile(system, sync));
  LOCKSTEP_RETURN_IF_ERROR(file->OpenDirectory(path));
  file->RemoveStale();
  LOCKSTEP_RETURN_IF_ERROR(file->OpenTemporary());
  file->writer_ = std::make_unique<BlockWriter>(system, file->file_, sync);
  return file;
}

AtomicFile::~AtomicFile() {
  writer_.reset();
  if (!temporary_.empty()) system_.Unlink(directory_, temporary_.c_str());
  if (file_ >= 0) system_.Close(file_);
  if (directory_ >= 0) system_.Close(directory_);
}

// The directory is used by its descriptor, so that renaming or removing it in the meantime does not redirect the file.
absl::Status AtomicFile::OpenDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  name_ = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name_.empty() || name_ == "." || name_ == "..")
    return absl::InvalidArgumentError("the path does not name a file");
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  directory_ = system_.Open(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (directory_ < 0) return SystemError("open its directory");
  struct stat status;
  // Report this before writing; the rename would fail with it afterwards.
  const bool there = system_.Stat(directory_, name_.c_str(), &status) == 0;
  if (!there && errno == ENAMETOOLONG) return SystemError("its name");
  if (there && S_ISDIR(status.st_mode)) return absl::FailedPreconditionError("is a directory");
  return there ? CheckRegular(status) : absl::OkStatus();  // the rename would replace a device or a FIFO
}

void AtomicFile::RemoveStale() const {
  const int copy = system_.Open(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  DIR* const entries = copy < 0 ? nullptr : fdopendir(copy);
  if (!entries) {
    if (copy >= 0) system_.Close(copy);
    return;
  }
  const std::string prefix = TemporaryPrefix(name_);
  while (const dirent* entry = readdir(entries)) {
    if (IsTemporary(entry->d_name, prefix)) RemoveUnlessLocked(system_, directory_, entry->d_name);
  }
  closedir(entries);
}

absl::Status AtomicFile::OpenTemporary() {
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string name = absl::StrFormat("%s%08x%08x", TemporaryPrefix(name_), random(), random());
    const int file = system_.Open(directory_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return SystemError("create a temporary file beside it");
    // Between the two calls another Save may have removed it as the file of a dead writer.
    const bool lost = system_.Lock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat status;
    if (!lost && system_.StatOpen(file, &status) == 0 && status.st_nlink > 0) {
      file_ = file;
      temporary_ = name;
      return absl::OkStatus();
    }
    system_.Unlink(directory_, name.c_str());
    system_.Close(file);
  }
  return absl::UnavailableError("no temporary file can be kept beside it");
}

absl::Status AtomicFile::Append(const void* from, size_t count) { return writer_->Append(from, count); }

absl::Status AtomicFile::Commit() {
  LOCKSTEP_RETURN_IF_ERROR(writer_->Finish());
  if (sync_ && system_.Sync(file_) != 0) return SystemError("flush to the disk");
  if (system_.Rename(directory_, temporary_.c_str(), name_.c_str()) != 0)
    return SystemError("rename the temporary file");
  temporary_.clear();
  // Some network file systems report a failed write only here.
  const int closed = system_.Close(std::exchange(file_, -1));
  if (closed != 0) return SystemError("the new file is in place, but closing it failed");
  if (sync_ && system_.Sync(directory_) != 0)
    return SystemError("the new file is in place, but flushing its directory failed");
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::file
