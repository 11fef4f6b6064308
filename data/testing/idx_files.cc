#include "lockstep/data/testing/idx_files.h"

#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace lockstep::data::testing {

std::string Idx(const std::vector<uint32_t>& sizes, const std::vector<uint8_t>& values) {
  std::string bytes("\0\0\x08", 3);
  bytes.push_back(static_cast<char>(sizes.size()));
  for (const uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(size >> shift & 0xff));
  }
  bytes.append(values.begin(), values.end());
  return bytes;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  constexpr int kGzip = 16 + MAX_WBITS;
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string compressed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = compressed.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

std::string TestFolder() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return ::testing::TempDir() + "/" + test->test_suite_name() + "." + test->name();
}

std::string WriteFile(const std::string& name, const std::string& bytes) {
  const std::filesystem::path path = TestFolder() + "/" + name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  EXPECT_TRUE(file.flush()) << path;
  return path;
}

}  // namespace lockstep::data::testing
