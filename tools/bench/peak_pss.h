// Measures the peak memory of this process, without its program and libraries. Shared memory is divided among the processes that share
// it.

#ifndef LOCKSTEP_TOOLS_BENCH_PEAK_PSS_H_
#define LOCKSTEP_TOOLS_BENCH_PEAK_PSS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep {

// Samples the proportional set size (Linux's Pss) every 2 ms on a separate thread. The kernel does not record its peak.
// It records the peak of the resident set, which counts shared memory once for every rank. A sample of gigabytes takes
// milliseconds, so nothing should be timed meanwhile.
class PeakPss {
 public:
  PeakPss() : sampler_([this] { Sample(); }) {}
  PeakPss(const PeakPss&) = delete;
  PeakPss& operator=(const PeakPss&) = delete;
  ~PeakPss() { Stop(); }

  // Stops sampling and returns the peak.
  int64_t Bytes() {
    Stop();
    return peak_;
  }

 private:
  static int64_t Now() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    int64_t bytes = 0;
    for (std::string line; std::getline(rollup, line);) {
      if (line.rfind("Pss_Anon:", 0) != 0 && line.rfind("Pss_Shmem:", 0) != 0) continue;
      bytes += std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
    }
    return bytes;
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
  std::thread sampler_;  // Last, since it uses the other members.
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_PEAK_PSS_H_
