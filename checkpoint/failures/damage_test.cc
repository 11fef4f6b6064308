// Damaged files: each gives an error that names it, or loads the saved value.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/failures/saved_file.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {
namespace {

using testing::SavedFile;

// A saved value whose file is damaged in place: replacing it each time takes 40 times as long on some disks.
class Damaged {
 public:
  explicit Damaged(const Value& value) : value_(value) {
    EXPECT_TRUE(Save(saved_.path(), value, {/*sync=*/false}).ok());
    file_ = UniqueFd(open(saved_.path().c_str(), O_RDWR | O_CLOEXEC));
    bytes_ = saved_.Contents();
  }

  size_t size() const { return bytes_.size(); }

  // Returns whether the file with this bit flipped is refused. Otherwise it must load the value.
  bool FlipIsRefused(size_t bit) const {
    const auto damaged = static_cast<char>(bytes_[bit / 8] ^ (1 << bit % 8));
    const auto at = static_cast<off_t>(bit / 8);
    EXPECT_EQ(pwrite(file_.get(), &damaged, 1, at), 1);
    const absl::StatusOr<Value> loaded = Load(saved_.path());
    EXPECT_EQ(pwrite(file_.get(), &bytes_[bit / 8], 1, at), 1);
    if (loaded.ok()) {
      EXPECT_TRUE(Identical(*loaded, value_)) << "bit " << bit << " loads another value";
    } else {
      EXPECT_TRUE(absl::StrContains(loaded.status().message(), saved_.path() + ": ")) << loaded.status();
    }
    return !loaded.ok();
  }

  // Sizes descend.
  bool TruncationIsRefused(size_t size) const {
    EXPECT_EQ(ftruncate(file_.get(), static_cast<off_t>(size)), 0);
    return !Load(saved_.path()).ok();
  }

 private:
  const SavedFile saved_;
  const Value value_;
  std::string bytes_;
  UniqueFd file_;
};

Value SmallCheckpoint() {
  Value state_dict = Value::OrderedDict({{"weight", at::arange(4.0)}});
  state_dict.SetAttributes(Value::Dict({{"_metadata", Value::OrderedDict({{"", Value::Dict({{"version", 1}})}})}}));
  return Value::Dict({{"epoch", 3}, {"state_dict", state_dict}, {"b", Value::Bytes("\xff")}});
}

// So large that several threads read parts of a tensor.
Value LargeCheckpoint() {
  return Value::Dict(
      {{"a", at::arange(int64_t{3} << 18)}, {"b", at::arange(1000)}, {"c", at::arange(int64_t{1} << 21)}});
}

TEST(Load, EverySingleBitFlipOfASmallFileIsRefusedOrHarmless) {
  const Damaged file(SmallCheckpoint());
  size_t refused = 0;
  for (size_t bit = 0; bit < file.size() * 8; ++bit) refused += file.FlipIsRefused(bit);
  std::printf("%zu bits: %zu refused, %zu harmless\n", file.size() * 8, refused, file.size() * 8 - refused);
  EXPECT_GT(refused, file.size() * 4);
}

TEST(Load, EveryTruncationOfASmallFileIsRefused) {
  const Damaged file(SmallCheckpoint());
  for (size_t size = file.size(); size-- > 0;) EXPECT_TRUE(file.TruncationIsRefused(size)) << size;
}

TEST(Load, AnySingleBitFlipOfALargeFileIsRefused) {
  const Damaged file(LargeCheckpoint());
  std::mt19937_64 random(1);
  // Nearly all of the file is tensors, in which every bit matters.
  for (int i = 0; i < 100; ++i) {
    const size_t bit = random() % (file.size() * 8);
    EXPECT_TRUE(file.FlipIsRefused(bit)) << "bit " << bit;
  }
}

TEST(Load, AnyTruncationOfALargeFileIsRefused) {
  const Damaged file(LargeCheckpoint());
  std::mt19937_64 random(2);
  for (size_t size = file.size() - 1; size > 1000; size -= 1 + random() % (file.size() / 50 + 1)) {
    EXPECT_TRUE(file.TruncationIsRefused(size)) << size;
    if (size < file.size() / 50 + 1) break;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
