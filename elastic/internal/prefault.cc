#include "lockstep/elastic/internal/prefault.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/base/thread.h"

namespace lockstep::elastic::internal {
namespace {

// After each of them the thread may stop: about 0.3 ms.
constexpr int64_t kChunkBytes = 1 << 20;

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
constexpr int kPopulate = 23;  // Linux 5.14; an older kernel answers EINVAL
#endif

}  // namespace

Prefault::Prefault(const std::vector<NamedTensor>& tensors) {
  absl::StatusOr<std::thread> thread = StartThread("World's prefault", [this, &tensors] { Run(tensors); });
  if (thread.ok()) thread_ = *std::move(thread);  // without it the transfer only takes longer
}

Prefault::~Prefault() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
}

void Prefault::Run(const std::vector<NamedTensor>& tensors) const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  for (const NamedTensor& each : tensors) {
    char* const data = static_cast<char*>(each.tensor.mutable_data_ptr());
    const int64_t size = static_cast<int64_t>(each.tensor.nbytes());
    const int64_t first = (page - static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % page)) % page;
    for (int64_t at = first; at + page <= size; at += kChunkBytes) {
      if (stops_) return;
      if (madvise(data + at, std::min(kChunkBytes, (size - at) / page * page), kPopulate) != 0) return;
    }
  }
}

}  // namespace lockstep::elastic::internal
