#include "lockstep/data/testing/png_files.h"

#include <zlib.h>

namespace lockstep::data::testing {
namespace {

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

std::string Chunk(const std::string& name, const std::string& data) {
  const std::string checked = name + data;
  const uint32_t crc = crc32(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
  return BigEndian(data.size()) + checked + BigEndian(crc);
}

}  // namespace

std::string Deflated(const std::string& bytes) {
  std::string result(compressBound(bytes.size()), '\0');
  uLongf size = result.size();
  compress(reinterpret_cast<Bytef*>(&result[0]), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  result.resize(size);
  return result;
}

std::string Png(const PngOptions& options, const std::string& rows) {
  const char kinds[] = {static_cast<char>(options.bits), static_cast<char>(options.colors), 0, 0, options.interlaced};
  const std::string header =
      BigEndian(options.size.width) + BigEndian(options.size.height) + std::string(kinds, sizeof(kinds));
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", header) + (options.palette.empty() ? "" : Chunk("PLTE", options.palette)) +
         Chunk("IDAT", Deflated(rows)) + Chunk("IEND", "");
}

}  // namespace lockstep::data::testing
