// Reads any bytes as a safetensors file. The tensors of an accepted file cover its data, and memory is bounded.

#include <cstdint>
#include <string>

#include "lockstep/checkpoint/fuzz/source.h"
#include "lockstep/checkpoint/safetensors/header.h"
#include "lockstep/tools/fuzz/require.h"

namespace lockstep::checkpoint::safetensors {
namespace {

constexpr size_t kMemoryLimit = 64 << 10;

uint64_t SizeOf(const SafetensorsTensor& tensor) {
  uint64_t size = tensor.dtype->size;
  for (const int64_t dimension : tensor.shape) {
    fuzz::Require(dimension >= 0, "no dimension is negative");
    size *= static_cast<uint64_t>(dimension);
  }
  return size;
}

void CheckTensors(const SafetensorsHeader& header, size_t size) {
  uint64_t end = header.data;
  for (const SafetensorsTensor& tensor : header.tensors) {
    fuzz::Require(header.data + tensor.begin == end, "tensors follow each other");
    end = header.data + tensor.end;
    fuzz::Require(end <= size && tensor.end - tensor.begin == SizeOf(tensor), "a tensor has its shape's bytes");
  }
  fuzz::Require(end == size, "tensors reach to the file's end");
}

size_t MemoryOf(const SafetensorsHeader& header) {
  size_t bytes = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    bytes += sizeof(tensor) + tensor.name.size() + sizeof(int64_t) * tensor.shape.size();
  }
  for (const auto& entry : header.metadata) bytes += sizeof(entry) + entry.first.size() + entry.second.size();
  return bytes;
}

// A header that is written again reads as the same header. An escape may take six times the bytes of the original.
void CheckRoundTrip(const SafetensorsHeader& header, const char* data, size_t size) {
  const std::string again =
      SafetensorsHeaderBytes(header).value() + std::string(data + header.data, size - header.data);
  const auto read = ReadSafetensorsHeader(fuzz::SourceOf(again.data(), again.size()), 8 * kMemoryLimit);
  fuzz::Require(read.ok() && read->metadata == header.metadata, "the metadata is the same");
  fuzz::Require(SafetensorsHeaderBytes(*read).value() == SafetensorsHeaderBytes(header).value(),
                "the tensors are the same");
}

void Check(const char* data, size_t size) {
  const auto header = ReadSafetensorsHeader(fuzz::SourceOf(data, size), kMemoryLimit);
  if (!header.ok()) return;
  CheckTensors(*header, size);
  fuzz::Require(MemoryOf(*header) <= kMemoryLimit, "memory stays within the limit");
  CheckRoundTrip(*header, data, size);
}

}  // namespace
}  // namespace lockstep::checkpoint::safetensors

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::checkpoint::safetensors::Check(reinterpret_cast<const char*>(data), size);
  return 0;
}
