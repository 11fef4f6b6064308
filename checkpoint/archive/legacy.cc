#include "lockstep/checkpoint/archive/legacy.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pickle/reader.h"

namespace lockstep::checkpoint::archive {
namespace {

using file::ByteSource;
using pickle::PickleGraph;
using pickle::PickleKind;
using pickle::PickleNode;
using pickle::PickleStorage;

constexpr absl::string_view kMagic = "119547037146038801333356";  // 0x1950a86a20f9469cfc6c
constexpr int64_t kVersion = 1001;

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

struct ElementSize {
  absl::string_view storage;
  uint64_t bytes;
};

// Storages of newer dtypes are written as bytes.
constexpr ElementSize kElementSizes[] = {
    {"DoubleStorage", 8}, {"FloatStorage", 4},          {"HalfStorage", 2},    {"LongStorage", 8},
    {"IntStorage", 4},    {"ShortStorage", 2},          {"CharStorage", 1},    {"ByteStorage", 1},
    {"BoolStorage", 1},   {"BFloat16Storage", 2},       {"QInt8Storage", 1},   {"QUInt8Storage", 1},
    {"QInt32Storage", 4}, {"ComplexDoubleStorage", 16}, {"UntypedStorage", 1}, {"ComplexFloatStorage", 8},
};

absl::StatusOr<uint64_t> SizeOfElement(absl::string_view storage) {
  const auto* const found = std::find_if(std::begin(kElementSizes), std::end(kElementSizes),
                                         [&](const ElementSize& known) { return known.storage == storage; });
  if (found != std::end(kElementSizes)) return found->bytes;
  return absl::UnimplementedError(absl::StrCat("a tensor in ", storage, " is not supported"));
}

// Reads the pickles one after another.
class Pickles {
 public:
  Pickles(const ByteSource& source, size_t memory_limit, const pickle::PickleClasses& classes)
      : source_(source), memory_limit_(memory_limit), classes_(classes) {}

  // `what` names the pickle in errors. `bytes` is set to what the graph refers to. The size of a pickle is not known,
  // so a growing part of the file is read until one ends in it.
  absl::StatusOr<PickleGraph> Next(absl::string_view what, std::string& bytes) {
    const uint64_t left = source_.size - position_;
    for (uint64_t size = kFirstPart;; size *= 4) {
      bytes.resize(std::min(size, left));
      LOCKSTEP_RETURN_IF_ERROR(source_.read(position_, bytes.data(), bytes.size()));
      absl::StatusOr<pickle::FirstPickle> first =
          pickle::ReadFirstPickle(bytes, memory_limit_ + pickle::kPickleMemoryPerByte * bytes.size(), classes_);
      if (absl::IsOutOfRange(first.status())) {
        if (bytes.size() < left) continue;
        return Malformed(absl::StrCat(what, ": the file is truncated"));
      }
      LOCKSTEP_RETURN_IF_ERROR(Annotate(first.status(), what));
      position_ += first->size;
      return std::move(first->graph);
    }
  }

  uint64_t position() const { return position_; }

 private:
  static constexpr uint64_t kFirstPart = 64 << 10;

  const ByteSource& source_;
  const size_t memory_limit_;
  const pickle::PickleClasses& classes_;
  uint64_t position_ = 0;
};

bool IsText(const PickleGraph& graph, PickleNode node, absl::string_view text) {
  return node.kind == PickleKind::kString && graph.strings[node.index] == text;
}

// {"protocol_version": 1001, "little_endian": True, "type_sizes": {...}}.
absl::Status CheckSystem(const PickleGraph& graph) {
  if (graph.root.kind == PickleKind::kDict) {
    for (const auto& [key, value] : graph.dicts[graph.root.index].entries) {
      if (!IsText(graph, key, "little_endian") || value.kind != PickleKind::kBool) continue;
      return value.boolean ? absl::OkStatus() : absl::UnimplementedError("the writer's byte order is not little");
    }
  }
  return Malformed("the writer's system: a dict with \"little_endian\" is expected");
}

absl::Status CheckBeginning(Pickles& pickles) {
  std::string bytes;
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleGraph magic, pickles.Next("the magic number", bytes));
  if (!IsText(magic, magic.root, kMagic)) return Malformed("the magic number is not torch.save's");
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleGraph version, pickles.Next("the version", bytes));
  if (version.root.kind != PickleKind::kInt || version.root.integer != kVersion)
    return Malformed(absl::StrCat("the version is not ", kVersion));
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleGraph system, pickles.Next("the writer's system", bytes));
  return CheckSystem(system);
}

using Storages = absl::flat_hash_map<absl::string_view, const PickleStorage*>;

// The value's storages by key. A storage that stands in several places is the same in each.
absl::StatusOr<Storages> StoragesOf(const PickleGraph& graph) {
  Storages storages;
  for (const PickleStorage& storage : graph.storages) {
    const auto [known, is_new] = storages.emplace(storage.key, &storage);
    if (!is_new && (known->second->type != storage.type || known->second->count != storage.count))
      return Malformed(absl::StrCat("storage \"", storage.key, "\" has two types or lengths"));
  }
  return storages;
}

// Where the storage at `position` begins and ends, behind its length.
absl::StatusOr<zip::ZipRecord> Place(const ByteSource& source, uint64_t position, const PickleStorage& storage) {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t element_size, SizeOfElement(storage.type));
  int64_t count = 0;
  if (source.size - position < sizeof(count)) return Malformed("the file is truncated");
  LOCKSTEP_RETURN_IF_ERROR(source.read(position, &count, sizeof(count)));
  if (count != storage.count) {
    return Malformed(absl::StrCat("expected the length ", storage.count, " of the value's description, found ", count));
  }
  zip::ZipRecord record;
  record.name = absl::StrCat(kLegacyArchive, "/data/", storage.key);
  record.header = position;
  record.offset = position + sizeof(count);
  if (count < 0 || static_cast<uint64_t>(count) > (source.size - record.offset) / element_size)
    return Malformed(
        absl::StrCat("the file is truncated: ", count, " elements of ", element_size, " bytes are expected"));
  record.size = static_cast<uint64_t>(count) * element_size;
  return record;
}

absl::Status PlaceAll(const ByteSource& source, uint64_t position, const PickleGraph& keys, LegacyFile& file) {
  if (keys.root.kind != PickleKind::kList) return Malformed("the storages' keys: a list is expected");
  LOCKSTEP_ASSIGN_OR_RETURN(Storages storages, StoragesOf(file.graph));
  for (const PickleNode node : keys.sequences[keys.root.index]) {
    if (node.kind != PickleKind::kString) return Malformed("the storages' keys: a str is expected");
    const auto storage = storages.find(keys.strings[node.index]);
    if (storage == storages.end()) {
      return Malformed(
          absl::StrCat("storage \"", keys.strings[node.index], "\" is not the value's, or is there twice"));
    }
    absl::StatusOr<zip::ZipRecord> record = Place(source, position, *storage->second);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(record.status(), absl::StrCat("storage \"", storage->first, "\"")));
    position = record->offset + record->size;
    file.records.push_back(*std::move(record));
    storages.erase(storage);
  }
  if (!storages.empty()) return Malformed(absl::StrCat("storage \"", storages.begin()->first, "\" is missing"));
  if (position == source.size) return absl::OkStatus();
  return Malformed(absl::StrCat(source.size - position, " bytes follow the last storage"));
}

}  // namespace

absl::StatusOr<bool> IsLegacy(const ByteSource& source) {
  constexpr size_t kStart = 32;
  std::string start(std::min<uint64_t>(source.size, kStart), '\0');
  if (start.empty()) return false;
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, start.data(), start.size()));
  // A protocol, from protocol 4 on a frame, and the number as opcode LONG1.
  return start[0] == '\x80' &&
         absl::StrContains(start, absl::string_view("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12));
}

absl::StatusOr<LegacyFile> ReadLegacy(const ByteSource& source, size_t memory_limit,
                                      const pickle::PickleClasses& classes) {
  Pickles pickles(source, memory_limit, classes);
  LOCKSTEP_RETURN_IF_ERROR(CheckBeginning(pickles));
  LegacyFile file;
  file.pickle = std::make_unique<std::string>();
  LOCKSTEP_ASSIGN_OR_RETURN(file.graph, pickles.Next("the value", *file.pickle));
  std::string bytes;
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleGraph keys, pickles.Next("the storages' keys", bytes));
  LOCKSTEP_RETURN_IF_ERROR(PlaceAll(source, pickles.position(), keys, file));
  return file;
}

}  // namespace lockstep::checkpoint::archive
