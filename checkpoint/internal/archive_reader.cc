#include "lockstep/checkpoint/internal/archive_reader.h"

#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/internal/decoder.h"
#include "lockstep/checkpoint/internal/pickle_graph.h"
#include "lockstep/checkpoint/internal/pickle_reader.h"
#include "lockstep/checkpoint/internal/zip_reader.h"

namespace lockstep::checkpoint::internal {
namespace {

// Says what a file is that is no zip archive.
absl::Status NameOtherFormats(const ByteSource& source) {
  // Protocol 2, then torch.save's magic number 0x1950a86a20f9469cfc6c.
  static constexpr absl::string_view kLegacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
  char start[14];
  if (source.size == 0) return absl::DataLossError("the file is empty");
  if (source.size < sizeof(start)) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, start, sizeof(start)));
  if (absl::string_view(start, sizeof(start)) == kLegacy) {
    return absl::UnimplementedError(
        "torch.save's legacy format (PyTorch before 1.6, or _use_new_zipfile_serialization=False) is not supported; "
        "load it in Python and save "
        "it again");
  }
  uint64_t header;
  std::memcpy(&header, start, sizeof(header));
  if (start[8] == '{' && header < source.size)
    return absl::UnimplementedError("a safetensors file, not a .pt file; use LoadSafetensors");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadRecord(const ZipReader& zip, const ZipRecord& record, bool verify) {
  std::string contents(record.size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(zip.Read(record, &contents[0], verify));
  return contents;
}

absl::StatusOr<std::string> ArchiveName(const ZipReader& zip) {
  if (zip.records().empty()) return absl::DataLossError("an archive without records");
  const std::string& first = zip.records().front().name;
  std::string archive = first.substr(0, first.find('/'));
  for (const ZipRecord& record : zip.records()) {
    if (!absl::StartsWith(record.name, absl::StrCat(archive, "/"))) {
      return absl::InvalidArgumentError(
          absl::StrCat("record \"", record.name, "\" is outside the folder \"", archive, "\"; no .pt file"));
    }
  }
  return archive;
}

absl::Status CheckLayout(const ZipReader& zip, const std::string& archive, bool verify) {
  if (zip.Find(absl::StrCat(archive, "/constants.pkl")) != nullptr) {
    return absl::UnimplementedError("a TorchScript archive, not a checkpoint; use torch::jit::load");
  }
  if (const ZipRecord* order = zip.Find(absl::StrCat(archive, "/byteorder"))) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string found, ReadRecord(zip, *order, verify));
    if (found != "little")
      return absl::UnimplementedError(absl::StrCat("record \"", order->name, "\": byte order is not little"));
  }
  return absl::OkStatus();
}

// What the tensors' data and the pickle leave of the file's size, and the limit on top.
size_t GraphLimit(const ZipReader& zip, uint64_t file_size, size_t memory_limit) {
  uint64_t contents = 0;
  for (const ZipRecord& record : zip.records()) contents += record.size;
  return memory_limit + (file_size - contents);
}

// Makes the entry the whole.
absl::Status MoveRootTo(PickleGraph& graph, absl::string_view key) {
  if (graph.root.kind != PickleKind::kDict) return absl::InvalidArgumentError("the file's value is no dict");
  for (const auto& [key_node, value] : graph.dicts[graph.root.index].entries) {
    if (key_node.kind != PickleKind::kString || graph.strings[key_node.index] != key) continue;
    graph.root = value;
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("the file's dict has no \"", key, "\""));
}

using Choose = std::function<absl::Status(PickleGraph& graph)>;

absl::StatusOr<Value> Read(const ByteSource& source, const Choose& choose, const LoadOptions& options,
                           SavedDevices* saved_devices) {
  LOCKSTEP_RETURN_IF_ERROR(NameOtherFormats(source));
  LOCKSTEP_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(source));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string archive, ArchiveName(zip));
  LOCKSTEP_RETURN_IF_ERROR(CheckLayout(zip, archive, options.verify));
  const std::string name = absl::StrCat(archive, "/data.pkl");
  const ZipRecord* record = zip.Find(name);
  if (record == nullptr) return absl::DataLossError(absl::StrCat("record \"", name, "\" is missing; no .pt file"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string pickle, ReadRecord(zip, *record, options.verify));
  auto graph = ReadPickle(pickle, GraphLimit(zip, source.size, options.memory_limit));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(graph.status(), absl::StrCat("record \"", name, "\"")));
  LOCKSTEP_RETURN_IF_ERROR(choose(*graph));
  return Decode(*graph, zip, {archive, options.map_location, options.verify, saved_devices});
}

}  // namespace

absl::StatusOr<Value> ReadArchive(const ByteSource& source, const LoadOptions& options, SavedDevices* saved_devices) {
  return Read(
      source, [](PickleGraph&) { return absl::OkStatus(); }, options, saved_devices);
}

absl::StatusOr<Value> ReadArchiveEntry(const ByteSource& source, absl::string_view key, const LoadOptions& options) {
  return Read(
      source, [&](PickleGraph& graph) { return MoveRootTo(graph, key); }, options, nullptr);
}

}  // namespace lockstep::checkpoint::internal
