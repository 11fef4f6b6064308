#include "lockstep/checkpoint/file/block_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"

namespace lockstep::checkpoint::file {
namespace {

constexpr size_t kBlockSize = size_t{4} << 20;
constexpr int kBlocks = 4;

}  // namespace

void BlockWriter::Free::operator()(char* memory) const { std::free(memory); }

BlockWriter::~BlockWriter() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    full_.clear();
    ending_ = true;
  }
  thread_.join();
}

absl::Status BlockWriter::Append(const void* from, size_t count) {
  for (const char* bytes = static_cast<const char*>(from); count > 0;) {
    if (!filling_.memory) LOCKSTEP_RETURN_IF_ERROR(TakeBlock());
    const size_t part = std::min(count, kBlockSize - filling_.size);
    std::memcpy(filling_.memory.get() + filling_.size, bytes, part);
    filling_.size += part;
    bytes += part;
    count -= part;
    if (filling_.size == kBlockSize) LOCKSTEP_RETURN_IF_ERROR(HandOver());
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::Finish() {
  if (!thread_.joinable()) {
    const MutexLock lock(mutex_);
    return status_.ok() ? WriteBlock(filling_) : status_;
  }
  if (filling_.size > 0) LOCKSTEP_RETURN_IF_ERROR(HandOver());
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  thread_.join();
  const MutexLock lock(mutex_);
  return status_;
}

absl::Status BlockWriter::TakeBlock() {
  const MutexLock lock(mutex_);
  if (free_.empty() && made_ < kBlocks) {
    Block block;
    block.memory.reset(static_cast<char*>(std::aligned_alloc(TwoWayFile::kAlignment, kBlockSize)));
    if (!block.memory) return absl::ResourceExhaustedError("no memory to write it with");
    ++made_;
    free_.push_back(std::move(block));
  }
  mutex_.Await(absl::Condition(this, &BlockWriter::BlockFreeLocked));
  LOCKSTEP_RETURN_IF_ERROR(status_);
  filling_ = std::move(free_.back());
  free_.pop_back();
  filling_.size = 0;
  filling_.offset = next_offset_;
  return absl::OkStatus();
}

absl::Status BlockWriter::HandOver() {
  next_offset_ += static_cast<off_t>(filling_.size);
  if (!thread_.joinable()) {
    absl::StatusOr<std::thread> thread = StartThread("the thread that writes", [this] { Run(); });
    if (!thread.ok()) return WriteHere();
    thread_ = *std::move(thread);
  }
  {
    const MutexLock lock(mutex_);
    full_.push_back(std::move(filling_));
  }
  filling_ = {};
  return absl::OkStatus();
}

absl::Status BlockWriter::WriteHere() {
  const absl::Status written = WriteBlock(filling_);
  const MutexLock lock(mutex_);
  status_.Update(written);
  free_.push_back(std::move(filling_));
  filling_ = {};
  return written;
}

void BlockWriter::Run() {
  file_.AllowDirect();
  const MutexLock lock(mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &BlockWriter::WorkLocked));
    if (full_.empty()) return;
    Block block = std::move(full_.front());
    full_.pop_front();
    if (status_.ok()) {
      UnlockMutex(mutex_);
      absl::Status written = WriteBlock(block);
      LockMutex(mutex_);
      status_.Update(written);
    }
    free_.push_back(std::move(block));
  }
}

}  // namespace lockstep::checkpoint::file
