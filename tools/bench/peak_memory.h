// The most memory that this process has over a time, shared memory divided by those that share it.

#ifndef LOCKSTEP_TOOLS_BENCH_PEAK_MEMORY_H_
#define LOCKSTEP_TOOLS_BENCH_PEAK_MEMORY_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep {

// Samples the proportional set size (Linux's Pss) every 2 ms in a thread of its own. The kernel keeps no peak of it,
// and the resident set's, which it keeps, counts shared memory once for every rank.
class PeakMemory {
 public:
  PeakMemory() : sampler_([this] { Sample(); }) {}
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;
  ~PeakMemory() { Stop(); }

  // Ends the sampling.
  int64_t Bytes() {
    Stop();
    return peak_;
  }

 private:
  static int64_t Now() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
      if (line.rfind("Pss:", 0) == 0) return std::strtoll(line.c_str() + 4, nullptr, 10) * 1024;
    }
    return 0;
  }

  void Sample() {
    while (!stop_) {
      peak_ = std::max(peak_, Now());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void Stop() {
    stop_ = true;
    if (sampler_.joinable()) sampler_.join();
  }

  std::atomic<bool> stop_{false};
  int64_t peak_ = 0;
  std::thread sampler_;  // Last: it uses the others.
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_PEAK_MEMORY_H_
