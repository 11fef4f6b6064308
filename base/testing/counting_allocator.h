// Counts the bytes of CPU tensors, for tests of memory.

#ifndef LOCKSTEP_BASE_TESTING_COUNTING_ALLOCATOR_H_
#define LOCKSTEP_BASE_TESTING_COUNTING_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::testing {

// LibTorch's allocator for the CPU, with a count. Thread-safe.
class CountingAllocator final : public at::Allocator {
 public:
  // Makes it the process's allocator. Tensors that are older are not counted.
  static void Install() {
    if (base_) return;
    base_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(new CountingAllocator, /*priority=*/1);
  }

  // The bytes of all tensors.
  static int64_t bytes() { return bytes_; }
  // The largest number of bytes since the last Restart().
  static int64_t peak() { return peak_; }
  static void Restart() { peak_ = bytes_.load(); }

  at::DataPtr allocate(size_t size) override {
    void* const data = base_->raw_allocate(size);
    const int64_t now = bytes_ += malloc_usable_size(data);
    for (int64_t most = peak_; now > most && !peak_.compare_exchange_weak(most, now);) {
    }
    return {data, data, &Free, at::Device(at::kCPU)};  // as raw_deallocate() requires, a pointer is its own context
  }
  at::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }

 private:
  static void Free(void* data) {
    bytes_ -= malloc_usable_size(data);
    base_->raw_deallocate(data);
  }

  inline static at::Allocator* base_ = nullptr;
  inline static std::atomic<int64_t> bytes_ = 0, peak_ = 0;
};

}  // namespace lockstep::testing

#endif  // LOCKSTEP_BASE_TESTING_COUNTING_ALLOCATOR_H_
