// Runs a fuzzer's entry point on files, on the records of archives, and on damaged copies of small inputs: every
// truncation and every single flipped bit. So the ordinary tests repeat the findings of fuzzing.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/zip/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::checkpoint {
namespace {

// If an input has at most this many damaged copies, each is tried; otherwise a sample.
constexpr size_t kCopies = 8192;

std::string Contents(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

std::vector<std::string> Records(const std::string& path) {
  std::vector<std::string> records;
  const auto source = file::OpenFile(path);
  if (!source.ok()) return records;
  const auto zip = zip::ZipReader::Open(*source);
  if (!zip.ok()) return records;
  for (const zip::ZipRecord& record : zip->records()) {
    records.emplace_back(record.size, '\0');
    if (!zip->Read(record, &records.back()[0], false).ok()) records.pop_back();
  }
  return records;
}

// Uses a copy of exactly this size, so that a sanitizer detects a read past the end.
size_t Run(const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  return 1;
}

size_t RunDamaged(std::string input) {
  size_t runs = Run(input);
  const size_t step = 1 + input.size() * 9 / kCopies;
  for (size_t size = 0; size < input.size(); size += step) runs += Run(input.substr(0, size));
  for (size_t i = 0; i < input.size(); i += step) {
    for (int bit = 0; bit < 8; ++bit) {
      input[i] = static_cast<char>(input[i] ^ (1 << bit));
      runs += Run(input);
      input[i] = static_cast<char>(input[i] ^ (1 << bit));
    }
  }
  return runs;
}

int RunAll(const std::vector<std::string>& paths) {
  size_t runs = 0;
  for (const std::string& path : paths) {
    runs += RunDamaged(Contents(path));
    for (const std::string& record : Records(path)) runs += RunDamaged(record);
  }
  std::cout << runs << " inputs" << std::endl;
  return runs > paths.size() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) { return lockstep::checkpoint::RunAll({argv + 1, argv + argc}); }
