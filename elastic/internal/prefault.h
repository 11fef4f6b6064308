// Maps the pages of tensors that are about to be received, on a thread beside the transfer. In 1 GiB of new memory are
// 262,144 pages, and the kernel takes as long to clear them as to copy their bytes.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_PREFAULT_H_
#define LOCKSTEP_ELASTIC_INTERNAL_PREFAULT_H_

#include <atomic>
#include <thread>
#include <vector>

#include "lockstep/elastic/internal/kept_state.h"

namespace lockstep::elastic::internal {

class Prefault {
 public:
  // Begins with the first tensor. All are of the CPU and contiguous, and outlive this object. Their contents stay.
  explicit Prefault(const std::vector<NamedTensor>& tensors);
  // Stops at once.
  ~Prefault();
  Prefault(const Prefault&) = delete;
  Prefault& operator=(const Prefault&) = delete;

 private:
  void Run(const std::vector<NamedTensor>& tensors) const;

  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_PREFAULT_H_
