// A file system with one failing call.

#ifndef LOCKSTEP_CHECKPOINT_FAILURES_FAULTY_FILE_SYSTEM_H_
#define LOCKSTEP_CHECKPOINT_FAILURES_FAULTY_FILE_SYSTEM_H_

#include <fcntl.h>

#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/file/file_system.h"

namespace lockstep::checkpoint::testing {

// Numbers the calls from 0 and asks `fault` before each one. 0: the call succeeds. An errno: it fails. kShort: it
// writes half of its data. kCrash: this call and all later ones have no effect, as if the process had died. Not
// thread-safe.
class FaultyFileSystem final : public file::FileSystem {
 public:
  static constexpr int kShort = -1;
  static constexpr int kCrash = -2;
  using Fault = std::function<int(size_t number, const std::string& call)>;

  explicit FaultyFileSystem(Fault fault) : fault_(std::move(fault)) {}

  // "openat", "pwrite", ... in order.
  const std::vector<std::string>& calls() const { return calls_; }

  int Open(int directory, const char* name, int flags, mode_t mode) override {
    return Do("openat", [&] { return FileSystem::Open(directory, name, flags, mode); });
  }
  int Stat(int directory, const char* name, struct stat* status) override {
    return Do("fstatat", [&] { return FileSystem::Stat(directory, name, status); });
  }
  int StatOpen(int file, struct stat* status) override {
    return Do("fstat", [&] { return FileSystem::StatOpen(file, status); });
  }
  int Lock(int file, int operation) override {
    return Do("flock", [&] { return FileSystem::Lock(file, operation); });
  }
  int SetFlags(int file, int flags) override {
    return Do((flags & O_DIRECT) != 0 ? "fcntl O_DIRECT" : "fcntl", [&] { return FileSystem::SetFlags(file, flags); });
  }
  ssize_t Write(int file, const void* from, size_t count, off_t offset) override {
    const int fault = Next("pwrite");
    if (fault == kShort) return FileSystem::Write(file, from, count / 2, offset);
    return fault == 0 ? FileSystem::Write(file, from, count, offset) : Fail(fault);
  }
  int Sync(int file) override {
    return Do("fsync", [&] { return FileSystem::Sync(file); });
  }
  int Rename(int directory, const char* from, const char* to) override {
    return Do("renameat", [&] { return FileSystem::Rename(directory, from, to); });
  }
  int Unlink(int directory, const char* name) override {
    return Do("unlinkat", [&] { return FileSystem::Unlink(directory, name); });
  }
  // close() always releases the descriptor, even after a crash.
  int Close(int file) override {
    const int closed = FileSystem::Close(file);
    const int fault = Next("close");
    return fault == 0 ? closed : Fail(fault);
  }

 private:
  int Next(const std::string& call) {
    calls_.push_back(call);
    if (crashed_) return kCrash;
    const int fault = fault_(calls_.size() - 1, call);
    crashed_ = fault == kCrash;
    return fault;
  }

  template <typename Call>
  int Do(const std::string& name, const Call& call) {
    const int fault = Next(name);
    return fault == 0 || fault == kShort ? call() : Fail(fault);
  }

  static int Fail(int fault) {
    errno = fault == kCrash ? EIO : fault;
    return -1;
  }

  Fault fault_;
  std::vector<std::string> calls_;
  bool crashed_ = false;
};

}  // namespace lockstep::checkpoint::testing

#endif  // LOCKSTEP_CHECKPOINT_FAILURES_FAULTY_FILE_SYSTEM_H_
