#include "lockstep/launch/output/last_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch {
namespace {

constexpr absl::string_view kCut = "...";

std::string EndOf(const std::string& line) {
  size_t start = line.size() - (kMostLastBytes - kCut.size());
  while (start < line.size() && (line[start] & 0xC0) == 0x80) ++start;  // not in the middle of a UTF-8 sequence
  return absl::StrCat(kCut, line.substr(start));
}

// Up to `size` bytes from the end of the file, which start with a whole line if the file has a line break there.
std::string EndOfFile(const UniqueFd& file, off_t size) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) return "";
  const off_t start = std::max<off_t>(info.st_size - size, 0);
  std::string text(static_cast<size_t>(info.st_size - start), '\0');
  text.resize(std::max<ssize_t>(pread(file.get(), text.data(), text.size(), start), 0));
  const size_t line_break = text.find('\n');
  if (start > 0 && line_break != std::string::npos && line_break + 1 < text.size()) text.erase(0, line_break + 1);
  return text;
}

}  // namespace

std::vector<std::string> LastLines(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  std::vector<std::string> last;
  size_t bytes = 0;
  for (auto line = lines.rbegin(); line != lines.rend() && last.size() < kMostLastLines; ++line) {
    std::string printable = Printable(absl::StripSuffix(*line, "\r"));
    if (last.empty() && printable.size() > kMostLastBytes) printable = EndOf(printable);
    bytes += printable.size();
    if (bytes > kMostLastBytes) break;
    last.push_back(std::move(printable));
  }
  std::reverse(last.begin(), last.end());
  if (last.size() == 1 && last[0].empty()) last.clear();
  return last;
}

std::vector<std::string> LastLinesOfFile(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  return file.valid() ? LastLines(EndOfFile(file, 2 * kMostLastBytes)) : std::vector<std::string>();
}

}  // namespace lockstep::launch
