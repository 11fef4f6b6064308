#include "lockstep/tools/launch/internal/report_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lockstep::launch::internal {
namespace {

constexpr char kMagic[] = "LOCKSTEP1 ";
constexpr size_t kMaxFile = 256 << 10;  // a Python report carries its traceback

void AppendUtf8(uint32_t rune, std::string* out) {
  if (rune >= 0xD800 && rune < 0xE000) rune = '?';  // half of a surrogate pair
  if (rune < 0x80) {
    out->push_back(rune);
  } else if (rune < 0x800) {
    absl::StrAppend(out, std::string{static_cast<char>(0xC0 | rune >> 6), static_cast<char>(0x80 | (rune & 0x3F))});
  } else {
    absl::StrAppend(out, std::string{static_cast<char>(0xE0 | rune >> 12), static_cast<char>(0x80 | (rune >> 6 & 0x3F)),
                                     static_cast<char>(0x80 | (rune & 0x3F))});
  }
}

// Takes one character or escape sequence from the front of a JSON string's inside.
bool TakeJsonCharacter(absl::string_view* text, std::string* out) {
  const char first = text->front();
  text->remove_prefix(1);
  if (first != '\\') {
    out->push_back(first);
    return true;
  }
  if (text->empty()) return false;
  const char escape = text->front();
  text->remove_prefix(1);
  if (escape == 'u') {
    uint32_t rune;
    if (text->size() < 4 || !absl::SimpleHexAtoi(text->substr(0, 4), &rune)) return false;
    text->remove_prefix(4);
    AppendUtf8(rune, out);
    return true;
  }
  constexpr absl::string_view kEscapes = "bfnrt", kMeanings = "\b\f\n\r\t";
  const size_t at = kEscapes.find(escape);
  out->push_back(at == absl::string_view::npos ? escape : kMeanings[at]);
  return true;
}

// The first value of a key "message" that is a string. Inside a JSON string quotes are escaped, so the key is found
// nowhere else.
std::optional<std::string> FindJsonMessage(absl::string_view text) {
  constexpr absl::string_view kKey = "\"message\"";
  for (size_t at = text.find(kKey); at != absl::string_view::npos; at = text.find(kKey)) {
    text.remove_prefix(at + kKey.size());
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(text);
    if (!absl::ConsumePrefix(&rest, ":")) continue;
    rest = absl::StripLeadingAsciiWhitespace(rest);
    if (!absl::ConsumePrefix(&rest, "\"")) continue;
    std::string message;
    while (!rest.empty() && rest.front() != '"') {
      if (!TakeJsonCharacter(&rest, &message)) return std::nullopt;
    }
    return message;
  }
  return std::nullopt;
}

std::string JsonString(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return absl::StrCat(quoted, "\"");
}

std::string TorchReport(absl::string_view message) {
  const std::string quoted = JsonString(message);
  return absl::StrFormat(R"({"message": {"message": %s, "extraInfo": {"py_callstack": %s, "timestamp": "%d"}}})",
                         quoted, quoted, time(nullptr));
}

bool WriteNewFile(const char* path, absl::string_view text) {
  const UniqueFd fd(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || info.st_size > 0) return false;
  return write(fd.get(), text.data(), text.size()) == text.size();
}

}  // namespace

int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

absl::StatusOr<UniqueFd> CreateReportFile() {
  UniqueFd fd = AboveStdio(UniqueFd(memfd_create("lockstep-rank-report", MFD_CLOEXEC)));
  if (!fd.valid())
    return absl::ResourceExhaustedError(absl::StrCat("launch: no file for a rank's report: ", strerror(errno)));
  return fd;
}

std::string ReportPath(const UniqueFd& fd) { return absl::StrCat("/proc/", getpid(), "/fd/", fd.get()); }

std::optional<Report> ReadReport(const UniqueFd& fd) {
  std::string text(kMaxFile, '\0');
  const ssize_t size = pread(fd.get(), text.data(), text.size(), 0);
  if (size <= 0) return std::nullopt;
  return ParseReport(absl::string_view(text.data(), size));
}

std::optional<Report> ParseReport(absl::string_view text) {
  Report report;
  if (absl::StartsWith(text, "{")) {
    std::optional<std::string> message = FindJsonMessage(text);
    if (!message) return std::nullopt;
    report.message = OneLine(*message);
    return report;
  }
  const size_t end = text.find('\n');
  if (!absl::ConsumePrefix(&text, kMagic) || end == absl::string_view::npos) return std::nullopt;
  const size_t header = end - (sizeof(kMagic) - 1);
  const std::vector<absl::string_view> fields = absl::StrSplit(text.substr(0, header), ' ');
  int code;
  uint32_t size;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &code) || !absl::SimpleAtoi(fields[1], &report.time_ns) ||
      !absl::SimpleAtoi(fields[2], &size) || code < 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return std::nullopt;
  }
  report.code = static_cast<absl::StatusCode>(code);
  report.message = OneLine(text.substr(header + 1, size));
  return report;
}

bool WriteReport(const absl::Status& status) {
  const std::string message = OneLine(status.message());
  if (const char* path = getenv(kErrorFileVariable)) {
    const std::string header =
        absl::StrCat(kMagic, status.raw_code(), " ", MonotonicNanos(), " ", message.size(), "\n");
    return WriteNewFile(path, absl::StrCat(header, message));
  }
  const char* torch_path = getenv(kTorchErrorFileVariable);
  return torch_path != nullptr && !status.ok() && WriteNewFile(torch_path, TorchReport(message));
}

std::string OneLine(absl::string_view text, size_t limit) {
  std::string line;
  for (const char c : absl::StripAsciiWhitespace(text)) {
    const bool blank = absl::ascii_iscntrl(c) || c == ' ';
    if (!blank) line.push_back(c);
    if (blank && !line.empty() && line.back() != ' ') line.push_back(' ');
  }
  if (line.size() <= limit) return line;
  const std::string note = absl::StrCat(" ... (", line.size(), " bytes)");
  size_t end = limit - std::min(limit, note.size());
  while (end > 0 && (line[end] & 0xC0) == 0x80) --end;  // not in the middle of a UTF-8 sequence
  return absl::StrCat(line.substr(0, end), note);
}

}  // namespace lockstep::launch::internal
