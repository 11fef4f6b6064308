#include <gtest/gtest.h>
#include <jemalloc/jemalloc.h>

#include <cstdint>
#include <cstdlib>

namespace lockstep {
namespace {

template <typename T>
T Read(const char* name) {
  T value{};
  size_t size = sizeof(value);
  EXPECT_EQ(mallctl(name, &value, &size, nullptr, 0), 0) << name;
  return value;
}

TEST(Jemalloc, TakesTheProgramsAllocationsAndIsToldToKeepWhatIsFreed) {
  EXPECT_EQ(Read<ssize_t>("opt.dirty_decay_ms"), -1);
  constexpr size_t kBytes = 64 << 20;
  const auto before = Read<uint64_t>("thread.allocated");
  void* volatile memory = malloc(kBytes);
  EXPECT_GE(Read<uint64_t>("thread.allocated"), before + kBytes);
  free(memory);
}

}  // namespace
}  // namespace lockstep
