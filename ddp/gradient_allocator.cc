#include "lockstep/ddp/gradient_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lockstep/ddp/internal/slot_requests.h"

namespace lockstep::ddp {
namespace internal {
namespace {

thread_local std::shared_ptr<SlotRequests> active;

// The places in use, by address. They are kept until the memory allocated there is freed.
struct Occupied {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<SlotMemory>> memory;
  std::atomic<int64_t> count{0};
};

Occupied& occupied() {
  static Occupied* const all = new Occupied;  // tensors may be freed after main
  return *all;
}

at::Allocator* base = nullptr;  // the allocator that this one replaced

void Occupy(const std::shared_ptr<SlotMemory>& memory) {
  const std::lock_guard<std::mutex> lock(occupied().mutex);
  occupied().memory.emplace(memory->data, memory);
  occupied().count.fetch_add(1, std::memory_order_relaxed);
}

// Null if `data` is not slot memory.
std::shared_ptr<SlotMemory> Leave(void* data) {
  if (occupied().count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(occupied().mutex);
  const auto found = occupied().memory.find(data);
  if (found == occupied().memory.end()) return nullptr;
  std::shared_ptr<SlotMemory> memory = std::move(found->second);
  occupied().memory.erase(found);
  occupied().count.fetch_sub(1, std::memory_order_relaxed);
  return memory;
}

// raw_allocate() requires that a pointer is its own context, and raw_deallocate() that one function frees any pointer.
// So the address determines how memory is freed.
void Free(void* data) {
  if (const auto memory = Leave(data)) {
    memory->occupied = false;
  } else {
    base->raw_deallocate(data);
  }
}

class GradientAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    void* const data = Allocate(bytes);
    return {data, data, &Free, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void* Allocate(size_t bytes) {
    if (!active || bytes < SlotRequests::kLeastBytes) return base->raw_allocate(bytes);
    if (const auto memory = active->Take(bytes)) {
      Occupy(memory);
      return memory->data;
    }
    void* const data = base->raw_allocate(bytes);
    active->Record(data, bytes);
    return data;
  }
};

}  // namespace

void SlotRequests::Activate(std::shared_ptr<SlotRequests> requests) { active = std::move(requests); }

void SlotRequests::Begin() {
  counts_.clear();
  requests_.clear();
  expected_.clear();
}

void SlotRequests::Expect(std::shared_ptr<SlotMemory> memory, int number) {
  const size_t bytes = memory->bytes;
  expected_[{bytes, number}] = std::move(memory);
}

void SlotRequests::Withdraw(size_t bytes, int number) { expected_.erase({bytes, number}); }

std::shared_ptr<SlotMemory> SlotRequests::Take(size_t bytes) {
  const auto found = expected_.find({bytes, ++counts_[bytes]});
  if (found == expected_.end()) return nullptr;
  std::shared_ptr<SlotMemory> memory = std::move(found->second);
  expected_.erase(found);
  return memory->occupied.exchange(true) ? nullptr : memory;
}

void SlotRequests::Record(void* data, size_t bytes) { requests_.push_back({data, bytes, counts_[bytes]}); }

int SlotRequests::NumberOf(const void* data, size_t bytes) const {
  // The last one: the same address may have been allocated and freed before.
  const auto found = std::find_if(requests_.rbegin(), requests_.rend(), [&](const Request& request) {
    return request.data == data && request.bytes == bytes;
  });
  return found == requests_.rend() ? 0 : found->number;
}

bool GradientAllocatorInstalled() { return base != nullptr; }

}  // namespace internal

void InstallGradientAllocator() {
  if (internal::base) return;
  internal::base = c10::GetCPUAllocator();
  static auto* const allocator = new internal::GradientAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

}  // namespace lockstep::ddp
