#include "lockstep/tensorboard/summary_writer.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/status.h"

namespace lockstep::tensorboard {
namespace {

// Protocol buffers' wire types.
constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

template <typename T>
std::string LittleEndian(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(&bytes[0], &value, sizeof(value));  // x86-64 and ARM64 are little-endian
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Key(int field, int wire_type) { return Varint(static_cast<uint64_t>(field) << 3 | wire_type); }

std::string Field(int field, absl::string_view bytes) {
  return absl::StrCat(Key(field, kBytes), Varint(bytes.size()), bytes);
}

// The field Event.wall_time has the number 1.
std::string WallTime() {
  return absl::StrCat(Key(1, kFixed64), LittleEndian(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())));
}

// A CRC of bytes that hold CRCs is weak, so TFRecord's are rotated and shifted.
uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

absl::StatusOr<SummaryWriter> SummaryWriter::Create(const std::string& log_dir) {
  std::error_code error;
  std::filesystem::create_directories(log_dir, error);
  std::string path = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", log_dir, absl::ToUnixSeconds(absl::Now()),
                                     HostName(), getpid());
  LOCKSTEP_ASSIGN_OR_RETURN(OutputFile opened, OutputFile::Create(path, path));
  SummaryWriter file(std::move(path), std::move(opened));
  // The first event has the field Event.file_version, whose number is 3.
  LOCKSTEP_RETURN_IF_ERROR(file.WriteRecord(absl::StrCat(WallTime(), Field(3, "brain.Event:2"))));
  return file;
}

absl::Status SummaryWriter::AddScalar(absl::string_view tag, double value, int64_t step) {
  // The numbers of fields: in Summary.Value 1 is tag and 2 is simple_value; in Summary 1 is value; in Event 2 is step
  // and 5 is summary.
  const std::string point = absl::StrCat(Field(1, tag), Key(2, kFixed32), LittleEndian(static_cast<float>(value)));
  return WriteRecord(absl::StrCat(WallTime(), Key(2, kVarint), Varint(step), Field(5, Field(1, point))));
}

absl::Status SummaryWriter::WriteRecord(const std::string& event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  return file_.Write(
      absl::StrCat(length, LittleEndian(Masked(Crc32c(length))), event, LittleEndian(Masked(Crc32c(event)))));
}

}  // namespace lockstep::tensorboard
