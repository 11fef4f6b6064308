#include "lockstep/checkpoint/file/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>

namespace lockstep::checkpoint::file {

FileSystem& FileSystem::Real() {
  static FileSystem* const real = new FileSystem;
  return *real;
}

int FileSystem::Open(int directory, const char* name, int flags, mode_t mode) {
  return openat(directory, name, flags, mode);
}

int FileSystem::Stat(int directory, const char* name, struct stat* status) {
  return fstatat(directory, name, status, 0);
}

int FileSystem::StatOpen(int file, struct stat* status) { return fstat(file, status); }

int FileSystem::Lock(int file, int operation) { return flock(file, operation); }

int FileSystem::SetFlags(int file, int flags) { return fcntl(file, F_SETFL, flags); }

ssize_t FileSystem::Write(int file, const void* from, size_t count, off_t offset) {
  return pwrite(file, from, count, offset);
}

int FileSystem::Sync(int file) { return fsync(file); }

int FileSystem::Rename(int directory, const char* from, const char* to) {
  return renameat(directory, from, directory, to);
}

int FileSystem::Unlink(int directory, const char* name) { return unlinkat(directory, name, 0); }

int FileSystem::Close(int file) { return close(file); }

}  // namespace lockstep::checkpoint::file
