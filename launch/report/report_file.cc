#include "lockstep/launch/report/report_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch {
namespace {

constexpr char kMagic[] = "LOCKSTEP1 ";
constexpr char kTold[] = "LOCKSTEP1 told ";
constexpr char kHeard[] = "LOCKSTEP1 heard ";
constexpr size_t kMaxHeard = 512;       // bytes of a text that identify an error
constexpr size_t kMaxNotes = 64 << 10;  // of a program that notes errors and continues
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

std::string TorchReport(absl::string_view message) {
  const std::string quoted = JsonString(message);
  return absl::StrFormat(R"({"message": {"message": %s, "extraInfo": {"py_callstack": %s, "timestamp": "%d"}}})",
                         quoted, quoted, time(nullptr));
}

bool Append(const UniqueFd& fd, absl::string_view text) {
  return write(fd.get(), text.data(), text.size()) == text.size();
}

UniqueFd OpenToAppend(const char* path) { return UniqueFd(open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600)); }

std::string ReadAll(const UniqueFd& fd) {
  std::string text(kMaxFile, '\0');
  text.resize(std::max<ssize_t>(pread(fd.get(), text.data(), text.size(), 0), 0));
  return text;
}

bool IsNote(absl::string_view line) { return absl::StartsWith(line, kTold) || absl::StartsWith(line, kHeard); }

struct Notes {
  int64_t told_ns = 0;  // the first time; 0: never
  std::vector<std::string> heard;
};

Notes NotesIn(absl::string_view text) {
  Notes notes;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int64_t time_ns;
    if (absl::ConsumePrefix(&line, kHeard)) notes.heard.emplace_back(line);
    if (notes.told_ns == 0 && absl::ConsumePrefix(&line, kTold) && absl::SimpleAtoi(line, &time_ns)) {
      notes.told_ns = time_ns;
    }
  }
  return notes;
}

bool IsConsequence(const Report& report, const Notes& notes) {
  if (notes.told_ns != 0 && (report.time_ns == 0 || notes.told_ns <= report.time_ns)) return true;
  return std::any_of(notes.heard.begin(), notes.heard.end(),
                     [&](const std::string& text) { return !text.empty() && absl::StrContains(report.message, text); });
}

std::string WithoutNotes(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (std::none_of(lines.begin(), lines.end(), IsNote)) return std::string(text);
  lines.erase(std::remove_if(lines.begin(), lines.end(), IsNote), lines.end());
  return std::string(absl::StripAsciiWhitespace(absl::StrJoin(lines, "\n")));
}

void WriteNote(absl::string_view note) {
  const char* path = getenv(kErrorFileVariable);
  if (!path) return;
  const UniqueFd fd = OpenToAppend(path);
  // A report's message ends without a line break.
  if (fd.valid() && ReadAll(fd).size() < kMaxNotes) Append(fd, absl::StrCat("\n", note, "\n"));
}

// Only notes may precede it.
bool WriteFirstReport(const char* path, absl::string_view text) {
  const UniqueFd fd = OpenToAppend(path);
  return fd.valid() && WithoutNotes(ReadAll(fd)).empty() && Append(fd, text);
}

}  // namespace

absl::StatusOr<UniqueFd> CreateReportFile() {
  UniqueFd fd = AboveStdio(UniqueFd(memfd_create("lockstep-rank-report", MFD_CLOEXEC)));
  if (!fd.valid())
    return absl::ResourceExhaustedError(absl::StrCat("launch: no file for a rank's report: ", strerror(errno)));
  return fd;
}

std::string ReportPath(const UniqueFd& fd) { return absl::StrCat("/proc/", getpid(), "/fd/", fd.get()); }

std::optional<Report> ReadReport(const UniqueFd& fd) { return ParseReport(ReadAll(fd)); }

std::string TorchErrorOf(const UniqueFd& fd) {
  std::string text = WithoutNotes(ReadAll(fd));
  const std::optional<Report> report = ParseReport(text);
  if (!report || report->code == absl::StatusCode::kOk) return "";
  return absl::StartsWith(text, "{") ? text : TorchReport(report->message);
}

bool WasTold(const UniqueFd& fd) { return NotesIn(ReadAll(fd)).told_ns != 0; }

std::optional<Report> ParseReport(absl::string_view whole) {
  const std::string without_notes = WithoutNotes(whole);
  absl::string_view text = without_notes;
  Report report;
  if (absl::StartsWith(text, "{")) {
    std::optional<std::string> message = FindJsonMessage(text);
    if (!message) return std::nullopt;
    report.message = OneLine(*message);
    report.consequence = IsConsequence(report, NotesIn(whole));
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
  report.consequence = IsConsequence(report, NotesIn(whole));
  return report;
}

bool WriteReport(const absl::Status& status) {
  const std::string message = OneLine(status.message());
  if (const char* path = getenv(kErrorFileVariable)) {
    const std::string header =
        absl::StrCat(kMagic, status.raw_code(), " ", MonotonicNanos(), " ", message.size(), "\n");
    return WriteFirstReport(path, absl::StrCat(header, message));
  }
  const char* torch_path = getenv(kTorchErrorFileVariable);
  return torch_path && !status.ok() && WriteFirstReport(torch_path, TorchReport(message));
}

void WriteTold() { WriteNote(absl::StrCat(kTold, MonotonicNanos())); }

void EraseNotes() {
  const char* path = getenv(kErrorFileVariable);
  if (!path) return;
  const UniqueFd fd = OpenToAppend(path);
  if (fd.valid() && WithoutNotes(ReadAll(fd)).empty() && ftruncate(fd.get(), 0) != 0) {
    // The notes stay, and the launcher may attribute an error of this rank to another one.
  }
}

void WriteHeard(absl::string_view message) { WriteNote(absl::StrCat(kHeard, OneLine(message).substr(0, kMaxHeard))); }

std::string JsonString(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return absl::StrCat(quoted, "\"");
}

std::string OneLine(absl::string_view text, size_t limit) {
  std::string spaced;
  for (const char c : absl::StripAsciiWhitespace(text)) {
    const bool blank = absl::ascii_isspace(c);
    if (!blank) spaced.push_back(c);
    if (blank && spaced.back() != ' ') spaced.push_back(' ');
  }
  const std::string line = Printable(spaced);
  if (line.size() <= limit) return line;
  const std::string note = absl::StrCat(" ... (", line.size(), " bytes)");
  size_t end = limit - std::min(limit, note.size());
  while (end > 0 && (line[end] & 0xC0) == 0x80) --end;  // not in the middle of a UTF-8 sequence
  return absl::StrCat(line.substr(0, end), note);
}

}  // namespace lockstep::launch
