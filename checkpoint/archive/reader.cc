#include "lockstep/checkpoint/archive/reader.h"

#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/decoder.h"
#include "lockstep/checkpoint/file/foreign_format.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::archive {
namespace {

using file::ByteSource;
using pickle::PickleGraph;
using zip::ZipReader;

// The error for a file that is not a zip archive: it names the format.
absl::Status NameOtherFormats(const ByteSource& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool safetensors, file::IsSafetensors(source));
  if (safetensors) return absl::UnimplementedError("a safetensors file, not a .pt file; use LoadSafetensors");
  return file::CheckForeignFormat(source);
}

absl::StatusOr<std::string> ReadRecord(const ZipReader& zip, const zip::ZipRecord& record, bool verify) {
  std::string contents(record.size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(zip.Read(record, &contents[0], verify));
  return contents;
}

std::string TopFolder(const ZipReader& zip) {
  const std::string& first = zip.records().front().name;
  return first.substr(0, first.find('/'));
}

// The name of the single folder that contains every record of an archive from torch.save.
absl::StatusOr<std::string> ArchiveName(const ZipReader& zip) {
  if (zip.records().empty()) return absl::DataLossError("an archive without records");
  std::string archive = TopFolder(zip);
  const auto has = [&](absl::string_view name) { return zip.Find(absl::StrCat(archive, "/", name)) != nullptr; };
  if (has("constants.pkl")) {
    return absl::UnimplementedError(
        "a TorchScript archive (torch.jit.save), not a checkpoint; load it with torch::jit::load, or in Python save "
        "torch.jit.load(path).state_dict()");
  }
  if (has("archive_format") && has("archive_version")) {
    return absl::UnimplementedError(
        "an archive of torch.export.save (.pt2), not a checkpoint; in Python save "
        "torch.export.load(path).state_dict");
  }
  if (!has("data.pkl")) {
    return absl::DataLossError("a zip archive without torch.save's record data.pkl; it is not a .pt file");
  }
  return archive;
}

absl::Status CheckLayout(const ZipReader& zip, const std::string& archive, bool verify) {
  for (const zip::ZipRecord& record : zip.records()) {
    if (!absl::StartsWith(record.name, absl::StrCat(archive, "/"))) {
      return absl::InvalidArgumentError(
          absl::StrCat("record \"", record.name, "\" is outside the folder \"", archive, "\"; it is not a .pt file"));
    }
    if (record.compressed) {
      return absl::UnimplementedError(absl::StrCat("record \"", record.name,
                                                   "\" is compressed, which torch.save never does; unpack the archive "
                                                   "and pack it with zip -0"));
    }
  }
  if (const zip::ZipRecord* order = zip.Find(absl::StrCat(archive, "/byteorder"))) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string found, ReadRecord(zip, *order, verify));
    if (found != "little")
      return absl::UnimplementedError(absl::StrCat("record \"", order->name, "\": byte order is not little"));
  }
  return absl::OkStatus();
}

// Makes the entry `key` the root of the graph.
absl::Status MoveRootTo(PickleGraph& graph, absl::string_view key) {
  if (graph.root.kind != pickle::PickleKind::kDict) return absl::InvalidArgumentError("the file's value is not a dict");
  for (const auto& [key_node, value] : graph.dicts[graph.root.index].entries) {
    if (key_node.kind != pickle::PickleKind::kString || graph.strings[key_node.index] != key) continue;
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
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string pickle, ReadRecord(zip, *zip.Find(name), options.verify));
  auto graph = pickle::ReadPickle(pickle, options.memory_limit + pickle::kPickleMemoryPerByte * pickle.size());
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

}  // namespace lockstep::checkpoint::archive
