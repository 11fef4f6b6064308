#include "lockstep/checkpoint/file/two_way_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "absl/time/clock.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::file {
namespace {

// A try of the slower way costs at most this part of the time.
constexpr int kShareOfTries = 20;
// The assumed cost of the first try of the disk: files that are written in 40 ms never use the disk.
constexpr absl::Duration kFirstTry = absl::Milliseconds(2);

}  // namespace

absl::Duration FasterWay::Blocks::Mean() const {
  if (count == 0) return absl::InfiniteDuration();
  const int kept = std::min<int>(count, last.size());
  return std::accumulate(last.begin(), last.begin() + kept, absl::ZeroDuration()) / kept;
}

bool FasterWay::Direct() const {
  const bool faster = Faster();
  const Blocks& slower = blocks_[faster ? 0 : 1];
  const absl::Duration cost = slower.count == 0 ? kFirstTry : slower.Mean();
  return since_try_ >= cost * kShareOfTries ? !faster : faster;
}

void FasterWay::Took(bool direct, absl::Duration time) {
  since_try_ = direct == Faster() ? since_try_ + time : absl::ZeroDuration();
  Blocks& blocks = blocks_[direct ? 1 : 0];
  blocks.last[blocks.count++ % blocks.last.size()] = time;
}

absl::Status TwoWayFile::Write(const char* from, size_t count, off_t offset) {
  LOCKSTEP_RETURN_IF_ERROR(Choose(direct_allowed_ && (always_direct_ || faster_.Direct())));
  const bool direct = direct_now_;
  const size_t aligned = direct ? count / kAlignment * kAlignment : count;
  const absl::Time start = absl::Now();
  LOCKSTEP_RETURN_IF_ERROR(WriteBytes(from, aligned, offset));
  faster_.Took(direct, absl::Now() - start);
  if (aligned == count) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Choose(false));
  return WriteBytes(from + aligned, count - aligned, offset + static_cast<off_t>(aligned));
}

absl::Status TwoWayFile::WriteBytes(const char* from, size_t count, off_t offset) {
  while (count > 0) {
    const ssize_t wrote = system_.Write(file_, from, count, offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && direct_now_) {  // the file system cannot, or a short write ended unaligned
      direct_allowed_ = false;
      LOCKSTEP_RETURN_IF_ERROR(Choose(false));
      continue;
    }
    if (wrote < 0) return absl::ErrnoToStatus(errno, "write");
    from += wrote;
    count -= wrote;
    offset += wrote;
  }
  return absl::OkStatus();
}

absl::Status TwoWayFile::Choose(bool direct) {
  if (direct == direct_now_) return absl::OkStatus();
  if (system_.SetFlags(file_, direct ? O_DIRECT : 0) == 0) {
    direct_now_ = direct;
    return absl::OkStatus();
  }
  if (!direct) return absl::ErrnoToStatus(errno, "end O_DIRECT");
  direct_allowed_ = false;
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::file
