// Measures the peak memory of tensors, as reported by LibTorch's allocators to its profiler.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_PEAK_MEMORY_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_PEAK_MEMORY_H_

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>

namespace lockstep::examples {

// Measures from construction to destruction, over all devices, for this thread and for threads that inherit its
// LibTorch state (backward's and dp::ParallelApply's).
//
//   PeakMemory peak;
//   Compute();
//   std::cout << peak.bytes() << " bytes beyond what there was\n";
class PeakMemory {
 public:
  PeakMemory() : meter_(std::make_shared<Meter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, meter_) {}

  int64_t bytes() const { return meter_->peak(); }

 private:
  class Meter : public c10::MemoryReportingInfoBase {
   public:
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      const std::lock_guard<std::mutex> lock(mutex_);
      now_ += bytes;
      peak_ = std::max(peak_, now_);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t peak() const {
      const std::lock_guard<std::mutex> lock(mutex_);
      return peak_;
    }

   private:
    mutable std::mutex mutex_;
    int64_t now_ = 0;
    int64_t peak_ = 0;
  };

  std::shared_ptr<Meter> meter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_PEAK_MEMORY_H_
