#include "lockstep/data/idx.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/testing/idx_files.h"

namespace lockstep::data {
namespace {

using ::lockstep::data::testing::Gzip;
using ::lockstep::data::testing::Idx;
using ::lockstep::data::testing::WriteFile;
using ::testing::ElementsAre;
using ::testing::StartsWith;

// Six values in two rows of three.
const std::string kSix = Idx({2, 3}, {1, 2, 3, 250, 0, 255});

// Reads `bytes` as a file; an error comes without the path that it must start with.
absl::StatusOr<at::Tensor> ReadBytes(const std::string& bytes) {
  const std::string path = WriteFile("file", bytes);
  absl::StatusOr<at::Tensor> tensor = ReadIdx(path);
  if (tensor.ok()) return tensor;
  EXPECT_THAT(std::string(tensor.status().message()), StartsWith(path + ": "));
  EXPECT_EQ(tensor.status().message().find('\n'), absl::string_view::npos);
  return absl::Status(tensor.status().code(), tensor.status().message().substr(path.size() + 2));
}

TEST(ReadIdx, ReadsPlainAndGzipFiles) {
  for (const std::string& bytes : {kSix, Gzip(kSix)}) {
    const absl::StatusOr<at::Tensor> tensor = ReadBytes(bytes);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_TRUE(tensor->equal(at::tensor({1, 2, 3, 250, 0, 255}, at::kByte).view({2, 3})));
    EXPECT_TRUE(tensor->is_contiguous());
  }
}

TEST(ReadIdx, ReadsSeveralGzipMembersAsOneStream) {
  const absl::StatusOr<at::Tensor> tensor = ReadBytes(Gzip(kSix.substr(0, 13)) + Gzip(kSix.substr(13)));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->flatten()[5].item<int>(), 255);
}

TEST(ReadIdx, ReadsMoreThanItsBuffersHold) {
  std::string values(3 * 1000 * 1001, 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * 2654435761u >> 24);
  const std::string idx = Idx({3, 1000, 1001}, {values.begin(), values.end()});
  for (const std::string& bytes : {idx, Gzip(idx)}) {
    const absl::StatusOr<at::Tensor> tensor = ReadBytes(bytes);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_THAT(tensor->sizes().vec(), ElementsAre(3, 1000, 1001));
    EXPECT_EQ(values, std::string(reinterpret_cast<const char*>(tensor->data_ptr<uint8_t>()), values.size()));
  }
}

TEST(ReadIdx, ReadsAnEmptyTensor) {
  const absl::StatusOr<at::Tensor> tensor = ReadBytes(Idx({0, 28, 28}, {}));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->sizes().vec(), ElementsAre(0, 28, 28));
}

TEST(ReadIdx, SaysWhichFileIsMissingOrUnreadable) {
  const std::string missing = ::testing::TempDir() + "/no/such/file";
  EXPECT_EQ(ReadIdx(missing).status(), absl::NotFoundError(missing + ": cannot be opened: No such file or directory"));
  const absl::Status folder = ReadIdx(::testing::TempDir()).status();
  EXPECT_EQ(folder.message(), ::testing::TempDir() + ": expected a regular file, found a folder");
  const std::string fifo = ::testing::TempDir() + "/idx_fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ReadIdx(fifo).status(), absl::InvalidArgumentError(fifo + ": expected a regular file, found a FIFO"));
}

TEST(ReadIdx, RefusesWhatIsNoIdxFileOfBytes) {
  EXPECT_EQ(ReadBytes("").status(), absl::DataLossError("expected 4 bytes of IDX magic number, found 0"));
  EXPECT_EQ(ReadBytes(kSix.substr(0, 3)).status(),
            absl::DataLossError("expected 4 bytes of IDX magic number, found 3"));
  EXPECT_EQ(ReadBytes("PK\3\4 and so on").status(),
            absl::InvalidArgumentError("expected an IDX file, which starts with bytes 00 00, found 50 4b"));
  EXPECT_EQ(ReadBytes(std::string("\0\0\x0d\1\0\0\0\0", 8)).status(),
            absl::InvalidArgumentError("expected IDX element type 0x08 (unsigned byte), found 0x0d"));
  EXPECT_EQ(ReadBytes(std::string("\0\0\x08\0", 4)).status(),
            absl::InvalidArgumentError("expected 1 to 8 dimensions, found 0"));
  EXPECT_EQ(ReadBytes(std::string("\0\0\x08\xff", 4) + std::string(2000, 1)).status(),
            absl::InvalidArgumentError("expected 1 to 8 dimensions, found 255"));
}

TEST(ReadIdx, NoticesEveryTruncationOfAPlainFile) {
  for (size_t size = 0; size < kSix.size(); ++size) {
    const absl::Status status = ReadBytes(kSix.substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << ": " << status;
  }
  EXPECT_EQ(ReadBytes(kSix.substr(0, 9)).status(), absl::DataLossError("expected 8 bytes of IDX sizes, found 5"));
  EXPECT_EQ(ReadBytes(kSix.substr(0, 17)).status(), absl::DataLossError("expected 6 bytes for sizes 2 x 3, found 5"));
}

TEST(ReadIdx, NoticesEveryTruncationOfAGzipFile) {
  const std::string gzip = Gzip(kSix);
  for (size_t size = 2; size < gzip.size(); ++size) {
    EXPECT_EQ(ReadBytes(gzip.substr(0, size)).status(),
              absl::DataLossError("expected the end of its gzip data, found the end of the file: it is truncated"))
        << size;
  }
}

TEST(ReadIdx, NoticesTrailingBytes) {
  EXPECT_EQ(ReadBytes(kSix + "x").status(), absl::DataLossError("expected 6 bytes for sizes 2 x 3, found more"));
  EXPECT_EQ(ReadBytes(Gzip(kSix + "x")).status(), absl::DataLossError("expected 6 bytes for sizes 2 x 3, found more"));
  EXPECT_EQ(ReadBytes(Gzip(kSix) + "x").status(),
            absl::DataLossError("expected the end of the file after its gzip data, found more bytes"));
}

TEST(ReadIdx, NoticesTooFewBytesInsideWholeGzip) {
  EXPECT_EQ(ReadBytes(Gzip(kSix.substr(0, 15))).status(),
            absl::DataLossError("expected 6 bytes for sizes 2 x 3, found 3"));
}

TEST(ReadIdx, NoticesAFlippedBitAnywhereInGzipThatGivesOtherValues) {
  const std::string gzip = Gzip(kSix);
  constexpr size_t kHeader = 10;  // Its modification time and operating system may be anything.
  for (size_t bit = 8 * kHeader; bit < 8 * gzip.size(); ++bit) {
    std::string flipped = gzip;
    flipped[bit / 8] ^= 1 << bit % 8;
    EXPECT_FALSE(ReadBytes(flipped).ok()) << bit;
  }
  std::string crc = gzip, length = gzip;
  crc[gzip.size() - 8] ^= 1;
  length[gzip.size() - 4] ^= 1;
  EXPECT_EQ(ReadBytes(crc).status(), absl::DataLossError("its gzip data is damaged: incorrect data check"));
  EXPECT_EQ(ReadBytes(length).status(), absl::DataLossError("its gzip data is damaged: incorrect length check"));
}

TEST(ReadIdx, AHostileHeaderCostsNoMemory) {
  // Allocating what it claims, 4.5 exabytes, would fail with another message.
  const std::string large = std::string("\0\0\x08\2", 4) + std::string(8, '\x7f') + "some bytes";
  EXPECT_EQ(ReadBytes(large).status(),
            absl::DataLossError("expected 4575586851615752449 bytes for sizes 2139062143 x 2139062143, found 10"));
}

TEST(ReadIdx, RefusesSizesBeyondWhatANumberHolds) {
  EXPECT_EQ(
      ReadBytes(std::string("\0\0\x08\3", 4) + std::string(12, '\xff')).status(),
      absl::InvalidArgumentError("expected at most 4611686018427387904 bytes, found sizes 4294967295 x 4294967295 x "
                                 "4294967295"));
  EXPECT_EQ(ReadBytes(std::string("\0\0\x08\4\0\0\0\0", 8) + std::string(12, '\xff')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
