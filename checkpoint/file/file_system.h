// The system calls by which a file is replaced, so that a test can make each of them fail.

#ifndef LOCKSTEP_CHECKPOINT_FILE_FILE_SYSTEM_H_
#define LOCKSTEP_CHECKPOINT_FILE_FILE_SYSTEM_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

namespace lockstep::checkpoint::file {

// Each function makes the system call of its name, and sets errno as that does. Write() may be called by another thread
// than the other functions.
class FileSystem {
 public:
  static FileSystem& Real();

  virtual ~FileSystem() = default;
  virtual int Open(int directory, const char* name, int flags, mode_t mode);
  virtual int Stat(int directory, const char* name, struct stat* status);
  virtual int StatOpen(int file, struct stat* status);
  virtual int Lock(int file, int operation);
  virtual int SetFlags(int file, int flags);
  virtual ssize_t Write(int file, const void* from, size_t count, off_t offset);
  virtual int Sync(int file);
  virtual int Rename(int directory, const char* from, const char* to);
  virtual int Unlink(int directory, const char* name);
  virtual int Close(int file);
};

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_FILE_SYSTEM_H_
