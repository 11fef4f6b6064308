#include "lockstep/data/testing/tiff_files.h"

namespace lockstep::data::testing {
namespace {

std::string LittleEndian(uint32_t value, int bytes) {
  std::string result;
  for (int i = 0; i < bytes; ++i) result.push_back(static_cast<char>(value >> 8 * i));
  return result;
}

struct Entry {
  uint16_t type;  // 3: numbers of two bytes; 4: of four
  uint32_t count;
  std::string numbers;
};

Entry Short(const std::vector<uint16_t>& numbers) {
  Entry entry = {3, static_cast<uint32_t>(numbers.size()), ""};
  for (const uint16_t number : numbers) entry.numbers += LittleEndian(number, 2);
  return entry;
}

Entry Long(const std::vector<uint32_t>& numbers) {
  Entry entry = {4, static_cast<uint32_t>(numbers.size()), ""};
  for (const uint32_t number : numbers) entry.numbers += LittleEndian(number, 4);
  return entry;
}

}  // namespace

std::string Tiff(const TiffEntries& entries, const std::vector<std::string>& blocks) {
  std::string file = std::string("II*\0\0\0\0\0", 8);
  std::vector<uint32_t> offsets;
  std::vector<uint32_t> sizes;
  for (const std::string& block : blocks) {
    offsets.push_back(file.size());
    sizes.push_back(block.size());
    file += block;
  }
  std::map<uint16_t, Entry> all;
  for (const auto& [tag, numbers] : entries) all[tag] = Short(numbers);
  const bool tiled = entries.count(322) != 0;
  all[tiled ? 324 : 273] = Long(offsets);
  all[tiled ? 325 : 279] = Long(sizes);
  std::string directory = LittleEndian(all.size(), 2);
  for (auto& [tag, entry] : all) {
    if (entry.numbers.size() > 4) {
      const uint32_t at = file.size();
      file += entry.numbers;
      entry.numbers = LittleEndian(at, 4);
    }
    entry.numbers.resize(4);
    directory += LittleEndian(tag, 2) + LittleEndian(entry.type, 2) + LittleEndian(entry.count, 4) + entry.numbers;
  }
  file.replace(4, 4, LittleEndian(file.size(), 4));
  return file + directory + LittleEndian(0, 4);
}

TiffEntries TiffOf(uint16_t height, uint16_t width, uint16_t photometric, uint16_t bits, uint16_t samples,
                   const TiffEntries& more) {
  TiffEntries entries = more;
  entries.insert({{256, {width}},
                  {257, {height}},
                  {258, std::vector<uint16_t>(samples, bits)},
                  {259, {1}},
                  {262, {photometric}},
                  {277, {samples}}});
  return entries;
}

}  // namespace lockstep::data::testing
