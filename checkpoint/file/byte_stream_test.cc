#include "lockstep/checkpoint/file/byte_stream.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::checkpoint::file {
namespace {

TEST(ReadFile, ReturnsAllBytesUpToABound) {
  const std::string path = ::testing::TempDir() + "/bytes", bytes("a\0b\n", 4);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(ReadFile(path, 4).value(), bytes);
  EXPECT_EQ(ReadFile(path, 3).status(), absl::DataLossError("has 4 bytes, expected at most 3"));
}

TEST(ReadFile, SaysWhatCannotBeRead) {
  EXPECT_EQ(ReadFile("/no/such/file", 4).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile("/dev/zero", 4).status(), absl::InvalidArgumentError("is not a regular file"));
  EXPECT_EQ(ReadFile(::testing::TempDir(), 4).status(), absl::InvalidArgumentError("is a directory, not a file"));
}

}  // namespace
}  // namespace lockstep::checkpoint::file
