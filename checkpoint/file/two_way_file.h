// A file that is written through the page cache or past it (O_DIRECT), block by block.

#ifndef LOCKSTEP_CHECKPOINT_FILE_TWO_WAY_FILE_H_
#define LOCKSTEP_CHECKPOINT_FILE_TWO_WAY_FILE_H_

#include <sys/types.h>

#include <array>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/checkpoint/file/file_system.h"

namespace lockstep::checkpoint::file {

// Chooses the faster way for the next block, by the time that earlier blocks took. Neither way is always the faster
// one: a disk may be ten times slower than memory. But the page cache takes new memory for each block. Where a virtual
// machine has to ask its host for that memory, 1 GiB took 1.0 to 2.0 s of system time, and 0.2 to 0.3 s where it had
// the memory already; O_DIRECT took 0.05 s, and 0.45 to 0.5 s in all (2-core EPYC, virtual disk, Linux 6.18).
class FasterWay {
 public:
  // Past the page cache? The slower way is tried again when a try costs a twentieth of the time since the last one.
  bool Direct() const;
  void Took(bool direct, absl::Duration time);

 private:
  // The mean of the last blocks. It includes the time in which the thread had to wait for a processor, of which the
  // page cache takes four times as much.
  struct Blocks {
    std::array<absl::Duration, 4> last;
    int count = 0;
    absl::Duration Mean() const;
  };
  bool Faster() const { return blocks_[1].Mean() < blocks_[0].Mean(); }

  std::array<Blocks, 2> blocks_;  // through the page cache, past it
  absl::Duration since_try_;
};

class TwoWayFile {
 public:
  // `direct`: every block goes past the page cache, because the file will be flushed. Otherwise each block goes the
  // faster way. `file` is open for writing and outlives this object, as `system` does.
  TwoWayFile(FileSystem& system, int file, bool direct) : system_(system), file_(file), always_direct_(direct) {}

  // Until this call, and if the file system refuses O_DIRECT, everything goes through the page cache.
  void AllowDirect() { direct_allowed_ = true; }

  // Memory and offset are aligned to kAlignment. The end of a count that is not aligned goes through the page cache.
  absl::Status Write(const char* from, size_t count, off_t offset);

  // The alignment of memory, offset and size in a write past the page cache. No disk requires more.
  static constexpr size_t kAlignment = 4096;

 private:
  absl::Status WriteBytes(const char* from, size_t count, off_t offset);
  absl::Status Choose(bool direct);

  FileSystem& system_;
  const int file_;
  const bool always_direct_;
  bool direct_allowed_ = false;
  bool direct_now_ = false;
  FasterWay faster_;
};

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_TWO_WAY_FILE_H_
