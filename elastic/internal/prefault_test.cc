#include "lockstep/elastic/internal/prefault.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lockstep::elastic::internal {
namespace {

// Returns whether memory is behind the whole pages of a tensor.
bool IsResident(const at::Tensor& tensor) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  char* const data = static_cast<char*>(tensor.mutable_data_ptr());
  const int64_t first = (page - static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % page)) % page;
  std::vector<unsigned char> pages((static_cast<int64_t>(tensor.nbytes()) - first) / page);
  EXPECT_EQ(mincore(data + first, pages.size() * page, pages.data()), 0);
  return std::all_of(pages.begin(), pages.end(), [](unsigned char each) { return (each & 1) != 0; });
}

bool KernelHasIt() {
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool has = madvise(page, 4096, 23) == 0;
  munmap(page, 4096);
  return has;
}

TEST(Prefault, MapsAllPagesAndChangesNoByte) {
  if (!KernelHasIt()) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  const std::vector<NamedTensor> tensors = {{"used", at::arange(1 << 20, at::kInt)},
                                            {"small", at::empty({3}, at::kByte)},
                                            {"empty", at::empty({0}, at::kByte)},
                                            {"new", at::empty({64 << 20}, at::kByte)}};
  ASSERT_FALSE(IsResident(tensors[3].tensor));
  const Prefault prefault(tensors);
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!IsResident(tensors[3].tensor) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(IsResident(tensors[3].tensor));
  EXPECT_TRUE(tensors[0].tensor.equal(at::arange(1 << 20, at::kInt)));
}

TEST(Prefault, StopsAtOnce) {
  const std::vector<NamedTensor> tensors = {{"new", at::empty({int64_t{1} << 30}, at::kByte)}};
  const absl::Time start = absl::Now();
  { const Prefault prefault(tensors); }
  EXPECT_FALSE(IsResident(tensors[0].tensor)) << absl::Now() - start;
}

}  // namespace
}  // namespace lockstep::elastic::internal
