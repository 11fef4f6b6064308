#include "lockstep/comm/shm/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace lockstep::comm::shm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// This is advice: if the kernel ignores it, the pages stay.
void ReturnPages(char* data, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const size_t begin = RoundUp(address, kPage), end = (address + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
}

}  // namespace

Heap::Heap(char* data, size_t bytes) : data_(data) { free_[0] = bytes; }

char* Heap::Allocate(size_t bytes) {
  const size_t size = RoundUp(std::max<size_t>(bytes, 1), kLine);
  if (size < bytes) return nullptr;
  const size_t alignment = size >= kHugePage ? kHugePage : kLine;
  const auto base = reinterpret_cast<uintptr_t>(data_);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const size_t begin = hole->first, end = begin + hole->second;
    const size_t offset = RoundUp(base + begin, alignment) - base;
    if (offset > end || end - offset < size) continue;
    free_.erase(hole);
    if (offset > begin) free_[begin] = offset - begin;
    if (end > offset + size) free_[offset + size] = end - offset - size;
    used_[offset] = size;
    return data_ + offset;
  }
  return nullptr;
}

void Heap::Free(char* pointer) {
  if (!pointer) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto used = used_.find(pointer - data_);
  if (used == used_.end()) return;
  if (used->second >= kReturned) ReturnPages(pointer, used->second);
  auto hole = free_.emplace(*used).first;
  used_.erase(used);
  const auto next = std::next(hole);
  if (next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second == hole->first) {
    previous->second += hole->second;
    free_.erase(hole);
  }
}

size_t Heap::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t sum = 0;
  for (const auto& entry : used_) sum += entry.second;
  return sum;
}

}  // namespace lockstep::comm::shm
