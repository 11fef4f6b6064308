// Writes a file from its start in blocks of some MiB, while the caller prepares the next block.

#ifndef LOCKSTEP_CHECKPOINT_FILE_BLOCK_WRITER_H_
#define LOCKSTEP_CHECKPOINT_FILE_BLOCK_WRITER_H_

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/checkpoint/file/file_system.h"
#include "lockstep/checkpoint/file/two_way_file.h"

namespace lockstep::checkpoint::file {

// A file of less than a block is written by Finish, on the caller's thread and through the page cache. A longer one is
// written by another thread (the caller's if the system refuses one), with O_DIRECT if the file will be flushed, and
// else in the way that is faster at that moment. 1 GiB with O_DIRECT took 0.5 to 0.7 s, flushed, and 0.7 to 0.75 s
// through the page cache (2-core Xeon), which also evicts other programs' data. Uses at most 16 MiB of memory.
class BlockWriter {
 public:
  // `file` is open for writing, empty, and outlives the writer, as `system` does. `flushed`: as `direct` of TwoWayFile.
  BlockWriter(FileSystem& system, int file, bool flushed) : file_(system, file, flushed) {}

  // Waits for the write under way, and discards data that is not written.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // Copies the bytes. Returns the error of an earlier block too, and so does every later call.
  absl::Status Append(const void* from, size_t count);

  // Writes the rest. Call it once, last.
  absl::Status Finish();

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  struct Block {
    std::unique_ptr<char, Free> memory;
    size_t size = 0;
    off_t offset = 0;
  };

  absl::Status TakeBlock();
  absl::Status HandOver();
  absl::Status WriteHere();
  void Run();
  absl::Status WriteBlock(const Block& block) { return file_.Write(block.memory.get(), block.size, block.offset); }
  bool BlockFreeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !free_.empty() || !status_.ok(); }
  bool WorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !full_.empty() || ending_; }

  TwoWayFile file_;  // used only by the writer: the thread, if there is one
  Block filling_;
  off_t next_offset_ = 0;
  int made_ = 0;
  std::thread thread_;
  absl::Mutex mutex_;
  std::deque<Block> full_ ABSL_GUARDED_BY(mutex_);
  std::vector<Block> free_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_BLOCK_WRITER_H_
