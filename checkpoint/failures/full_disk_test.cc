// Saves on a full disk.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <sched.h>
#include <sys/mount.h>

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/failures/saved_file.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SavedFile;

// Mounts an empty file system of 8 MiB at `directory`. Only this thread and its children see it.
bool MountSmallDisk(const std::string& directory) {
  return unshare(CLONE_FS | CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("small", directory.c_str(), "tmpfs", 0, "size=8m") == 0;
}

void FillDisk(const SavedFile& file) {
  const Value small = Value::Dict({{"weight", at::full({1 << 18}, 1.0)}});
  const Value large = Value::Dict({{"weight", at::full({4 << 20}, 2.0)}});
  for (const bool sync : {true, false}) {
    const SaveOptions options = {sync};
    ASSERT_TRUE(Save(file.path(), small, options).ok());
    const absl::Status status = Save(file.path(), large, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file.path() + ": write: No space left on device"));
    const absl::StatusOr<Value> left = Load(file.path());
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_TRUE(Identical(*left, small));
    EXPECT_THAT(file.Names(), ElementsAre("model.pt"));
  }
}

TEST(Save, OnAFullDiskKeepsThePreviousFileAndLeavesNothing) {
  const SavedFile file;
  bool mounted = false;
  std::thread([&] {
    mounted = MountSmallDisk(file.directory());
    if (mounted) FillDisk(file);
  }).join();
  if (!mounted) GTEST_SKIP() << "SKIPPED: this system does not let the test mount a small disk";
}

}  // namespace
}  // namespace lockstep::checkpoint
