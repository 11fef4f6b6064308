#include "lockstep/checkpoint/archive/reader.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/decoder.h"
#include "lockstep/checkpoint/archive/legacy.h"
#include "lockstep/checkpoint/archive/objects.h"
#include "lockstep/checkpoint/file/foreign_format.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::archive {
namespace {

using file::ByteSource;
using pickle::PickleGraph;
using pickle::PickleKind;
using pickle::PickleNode;
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

// The value of `node` as far as errors of Get show it: a dict has its keys only.
Value Outline(const PickleGraph& graph, PickleNode node) {
  switch (node.kind) {
    case PickleKind::kBool:
      return node.boolean;
    case PickleKind::kInt:
      return node.integer;
    case PickleKind::kDouble:
      return node.real;
    case PickleKind::kString:
      return graph.strings[node.index];
    case PickleKind::kBytes:
      return Value::Bytes(graph.strings[node.index]);
    case PickleKind::kList:
      return Value::List(std::vector<Value>(graph.sequences[node.index].size()));
    case PickleKind::kTuple:
      return Value::Tuple(std::vector<Value>(graph.sequences[node.index].size()));
    case PickleKind::kTensor:
      return at::Tensor();
    case PickleKind::kDict: {
      Value dict = Value::Dict();
      for (const auto& entry : graph.dicts[node.index].entries) {
        if (entry.first.kind <= PickleKind::kBytes) dict.Set(Outline(graph, entry.first), Value());
      }
      return dict;
    }
    default:
      return Value();
  }
}

// The node at `step` of a container, or nullptr. A key that occurs twice has its last value.
const PickleNode* Find(const PickleGraph& graph, PickleNode container, const Value& step) {
  if (container.kind == PickleKind::kDict && step.is_string()) {
    const auto& entries = graph.dicts[container.index].entries;
    const auto found = std::find_if(entries.rbegin(), entries.rend(), [&](const auto& entry) {
      return entry.first.kind == PickleKind::kString && graph.strings[entry.first.index] == step.string_value();
    });
    return found == entries.rend() ? nullptr : &found->second;
  }
  if ((container.kind == PickleKind::kList || container.kind == PickleKind::kTuple) && step.is_int()) {
    const auto& items = graph.sequences[container.index];
    const int64_t index = step.int_value();
    return index >= 0 && static_cast<size_t>(index) < items.size() ? &items[index] : nullptr;
  }
  return nullptr;
}

// Makes the value at `path` the root of the graph. Errors are Get's.
absl::Status MoveRootTo(PickleGraph& graph, const KeyPath& path) {
  const std::vector<Value>& steps = path.steps();
  for (size_t at = 0; at < steps.size(); ++at) {
    if (const PickleNode* found = Find(graph, graph.root, steps[at])) {
      graph.root = *found;
      continue;
    }
    Value outline = Outline(graph, graph.root);
    for (size_t above = at; above-- > 0;) outline = Value::Dict({{steps[above], outline}});
    const absl::Status status = Get(outline, path).status();
    return status.ok() ? absl::NotFoundError(absl::StrCat(path.ToString(), ": no such key")) : status;
  }
  return absl::OkStatus();
}

// `status` with the path of the root before its own.
absl::Status Below(const KeyPath& path, const absl::Status& status) {
  if (status.ok() || path.steps().empty()) return status;
  return absl::Status(status.code(), absl::StrCat(path.ToString(), absl::StartsWith(status.message(), "[") ? "" : ": ",
                                                  status.message()));
}

absl::Status Choose(PickleGraph& graph, const KeyPath& path, absl::string_view record) {
  LOCKSTEP_RETURN_IF_ERROR(MoveRootTo(graph, path));
  return Annotate(Below(path, pickle::CheckRefused(graph)), record);
}

absl::StatusOr<Value> ReadZip(const ByteSource& source, const KeyPath& path, const LoadOptions& options,
                              SavedDevices* saved_devices, DeferredTensors* deferred) {
  LOCKSTEP_ASSIGN_OR_RETURN(ZipReader opened, ZipReader::Open(source));
  const auto shared = std::make_shared<const ZipReader>(std::move(opened));
  const ZipReader& zip = *shared;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string archive, ArchiveName(zip));
  LOCKSTEP_RETURN_IF_ERROR(CheckLayout(zip, archive, options.verify));
  const std::string name = absl::StrCat(archive, "/data.pkl");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string pickle, ReadRecord(zip, *zip.Find(name), options.verify));
  const size_t limit = options.memory_limit + pickle::kPickleMemoryPerByte * pickle.size();
  auto graph = pickle::ReadPickleParts(pickle, limit, ObjectClasses());
  const std::string record = absl::StrCat("record \"", name, "\"");
  LOCKSTEP_RETURN_IF_ERROR(Annotate(graph.status(), record));
  LOCKSTEP_RETURN_IF_ERROR(Choose(*graph, path, record));
  return Decode(*graph, shared,
                {archive, options.map_location, options.verify, path.ToString(), saved_devices, deferred});
}

// The legacy format has no checksums to verify.
absl::StatusOr<Value> ReadLegacyFile(const ByteSource& source, const KeyPath& path, const LoadOptions& options,
                                     SavedDevices* saved_devices, DeferredTensors* deferred) {
  constexpr char kFormat[] = "torch.save's legacy format";
  absl::StatusOr<LegacyFile> legacy = ReadLegacy(source, options.memory_limit, ObjectClasses());
  LOCKSTEP_RETURN_IF_ERROR(Annotate(legacy.status(), kFormat));
  LOCKSTEP_RETURN_IF_ERROR(Choose(legacy->graph, path, kFormat));
  const auto storages = std::make_shared<const ZipReader>(ZipReader::OfRecords(source, std::move(legacy->records)));
  return Decode(legacy->graph, storages,
                {kLegacyArchive, options.map_location, /*verify=*/false, path.ToString(), saved_devices, deferred});
}

}  // namespace

absl::StatusOr<Value> ReadArchive(const ByteSource& source, const LoadOptions& options, SavedDevices* saved_devices) {
  return ReadArchiveEntry(source, KeyPath(std::vector<Value>()), options, saved_devices);
}

absl::StatusOr<Value> ReadArchiveEntry(const ByteSource& source, const KeyPath& path, const LoadOptions& options,
                                       SavedDevices* saved_devices, DeferredTensors* deferred) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool legacy, IsLegacy(source));
  if (legacy) return ReadLegacyFile(source, path, options, saved_devices, deferred);
  LOCKSTEP_RETURN_IF_ERROR(NameOtherFormats(source));
  return ReadZip(source, path, options, saved_devices, deferred);
}

}  // namespace lockstep::checkpoint::archive
