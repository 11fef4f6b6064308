#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/checkpoint/sharded/internal/boxes.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::internal {
namespace {

using pickle::PickleDict;
using pickle::PickleKind;
using pickle::PickleNode;
using pickle::PickleObject;

constexpr char kModule[] = "torch.distributed.checkpoint.metadata";

// The classes of a .metadata file. Only the first seven are used. The others are Python's representation of a layout, a
// memory format (getattr: in Python 3.11.0 to 3.11.3) and a path, and are ignored.
const pickle::PickleClasses& Classes() {
  static const auto& classes = *new pickle::PickleClasses{
      {kModule, "Metadata"},
      {kModule, "TensorStorageMetadata"},
      {kModule, "BytesStorageMetadata"},
      {kModule, "ChunkStorageMetadata"},
      {kModule, "TensorProperties"},
      {kModule, "MetadataIndex"},
      {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
      {kModule, "StorageMeta"},
      {kModule, "_MEM_FORMAT_ENCODING"},
      // Before PyTorch 2.3.
      {"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"},
      {"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"},
      {"torch.serialization", "_get_layout"},
      {"builtins", "getattr"},
      {"pathlib", "PosixPath"},
      {"pathlib", "WindowsPath"},
      {"pathlib._local", "PosixPath"},
      {"pathlib._local", "WindowsPath"},
  };
  return classes;
}

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

using Offsets = std::vector<int64_t>;

// The file and the position of an item's bytes.
struct Stored {
  absl::string_view file;
  int64_t offset = 0;
  int64_t length = 0;
};

// A plain value has no offsets; a tensor without dimensions has an empty vector of them.
using StoredKey = std::tuple<absl::string_view, bool, Offsets>;

class MetadataDecoder {
 public:
  explicit MetadataDecoder(const pickle::PickleGraph& graph) : graph_(graph) {}

  absl::StatusOr<ShardedMetadata> Run();

 private:
  absl::StatusOr<const PickleObject*> Object(PickleNode node, absl::string_view name) const;
  PickleNode Attribute(const PickleObject& object, absl::string_view name) const;
  absl::StatusOr<const PickleDict*> Dict(PickleNode node) const;
  absl::StatusOr<absl::string_view> Text(PickleNode node) const;
  absl::StatusOr<int64_t> Count(PickleNode node) const;
  absl::StatusOr<std::vector<int64_t>> Size(PickleNode node) const;

  absl::Status CheckVersion(PickleNode version) const;
  absl::Status ReadStorage(PickleNode storage_data);
  absl::Status ReadStored(PickleNode index, PickleNode info);
  absl::Status ReadPaths(PickleNode planner_data);
  absl::StatusOr<ShardedItem> Item(absl::string_view name, PickleNode node);
  absl::StatusOr<std::vector<Value>> Path(absl::string_view name) const;
  absl::Status ReadTensor(const PickleObject& tensor, ShardedItem& item);
  absl::Status ReadProperties(PickleNode properties, ShardedItem& item) const;
  absl::StatusOr<Box> ReadBox(PickleNode chunk, const std::vector<int64_t>& sizes) const;
  absl::StatusOr<ShardedChunk> Locate(const ShardedItem& item, Box box);

  const pickle::PickleGraph& graph_;
  absl::flat_hash_map<StoredKey, Stored> stored_;
  absl::flat_hash_map<absl::string_view, PickleNode> paths_;
};

absl::StatusOr<const PickleObject*> MetadataDecoder::Object(PickleNode node, absl::string_view name) const {
  if (node.kind != PickleKind::kObject || graph_.objects[node.index].name != name)
    return Malformed(absl::StrCat("a ", name, " is expected here"));
  return &graph_.objects[node.index];
}

// None if it does not exist, which is the default in these classes. Also None if the object has more attributes than
// any of the classes: this keeps the search short in a malicious file whose objects share one long state.
PickleNode MetadataDecoder::Attribute(const PickleObject& object, absl::string_view name) const {
  PickleNode found;
  constexpr size_t kMost = 32;
  if (object.state.kind != PickleKind::kDict || graph_.dicts[object.state.index].entries.size() > kMost) return found;
  for (const auto& [key, value] : graph_.dicts[object.state.index].entries) {
    if (key.kind == PickleKind::kString && graph_.strings[key.index] == name) found = value;
  }
  return found;
}

absl::StatusOr<const PickleDict*> MetadataDecoder::Dict(PickleNode node) const {
  if (node.kind != PickleKind::kDict) return Malformed("a dict is expected here");
  return &graph_.dicts[node.index];
}

absl::StatusOr<absl::string_view> MetadataDecoder::Text(PickleNode node) const {
  if (node.kind != PickleKind::kString) return Malformed("a str is expected here");
  return graph_.strings[node.index];
}

absl::StatusOr<int64_t> MetadataDecoder::Count(PickleNode node) const {
  if (node.kind != PickleKind::kInt) return Malformed("an int is expected here");
  if (node.integer < 0) return Malformed(absl::StrCat("a negative number of bytes: ", node.integer));
  return node.integer;
}

absl::StatusOr<std::vector<int64_t>> MetadataDecoder::Size(PickleNode node) const {
  if (node.kind != PickleKind::kTuple) return Malformed("a torch.Size is expected here");
  std::vector<int64_t> size;
  for (const PickleNode extent : graph_.sequences[node.index]) {
    if (extent.kind != PickleKind::kInt) return Malformed("a torch.Size with an element that is not an int");
    size.push_back(extent.integer);
    if (size.size() > 64) return Malformed("a tensor of more than 64 dimensions");
  }
  return size;
}

absl::Status MetadataDecoder::CheckVersion(PickleNode version) const {
  if (version.kind == PickleKind::kNone) return absl::OkStatus();  // before PyTorch 2.7
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view text, Text(version));
  if (absl::StartsWith(text, "1.")) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("version ", text.substr(0, 20), " of the layout is not supported"));
}

// Accepts a plain name, which cannot lead out of the directory.
absl::Status CheckFileName(absl::string_view file) {
  constexpr size_t kLongest = 255;
  const bool plain = !file.empty() && file != "." && file != ".." && file.size() <= kLongest &&
                     file.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", file.substr(0, kLongest), "\" is not the name of a file in the checkpoint's directory"));
}

absl::Status MetadataDecoder::ReadStored(PickleNode index, PickleNode info) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleObject* key, Object(index, "MetadataIndex"));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view name, Text(Attribute(*key, "fqn")));
  const PickleNode offset = Attribute(*key, "offset");
  const bool part = offset.kind != PickleKind::kNone;
  Offsets offsets;
  if (part) {
    LOCKSTEP_ASSIGN_OR_RETURN(offsets, Size(offset));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleObject* value, Object(info, "_StorageInfo"));
  Stored stored;
  LOCKSTEP_ASSIGN_OR_RETURN(stored.file, Text(Attribute(*value, "relative_path")));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckFileName(stored.file), absl::StrCat("item \"", name, "\"")));
  LOCKSTEP_ASSIGN_OR_RETURN(stored.offset, Count(Attribute(*value, "offset")));
  LOCKSTEP_ASSIGN_OR_RETURN(stored.length, Count(Attribute(*value, "length")));
  if (Attribute(*value, "transform_descriptors").kind != PickleKind::kNone)
    return absl::UnimplementedError(absl::StrCat("item \"", name, "\": transformed by an extension"));
  stored_[StoredKey(name, part, std::move(offsets))] = stored;
  return absl::OkStatus();
}

absl::Status MetadataDecoder::ReadStorage(PickleNode storage_data) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleDict* dict, Dict(storage_data));
  for (const auto& [index, info] : dict->entries) LOCKSTEP_RETURN_IF_ERROR(ReadStored(index, info));
  return absl::OkStatus();
}

// Planners other than the default one may store anything here, or nothing.
absl::Status MetadataDecoder::ReadPaths(PickleNode planner_data) {
  if (planner_data.kind != PickleKind::kDict) return absl::OkStatus();
  for (const auto& [key, path] : graph_.dicts[planner_data.index].entries) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view name, Text(key));
    paths_[name] = path;
  }
  return absl::OkStatus();
}

// The path spells the name, so it takes no more memory than the name, even if the pickle shares it.
absl::StatusOr<std::vector<Value>> MetadataDecoder::Path(absl::string_view name) const {
  const auto found = paths_.find(name);
  if (found == paths_.end()) return std::vector<Value>{name};
  if (found->second.kind != PickleKind::kTuple) return Malformed("its path is not a tuple");
  const std::vector<PickleNode>& steps = graph_.sequences[found->second.index];
  if (steps.empty() || steps.size() > archive::kMaxDepth) return Malformed("its path is empty or too long");
  std::vector<Value> path;
  absl::string_view rest = name;
  for (const PickleNode step : steps) {
    if (step.kind == PickleKind::kInt && step.integer >= 0) {
      path.emplace_back(step.integer);
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view text, Text(step));
      if (!absl::StartsWith(rest, text)) return Malformed("its path does not spell its name");
      path.emplace_back(text);
    }
    rest.remove_prefix(std::min(rest.size(), JoinPath({path.back()}).size() + 1));
  }
  if (JoinPath(path) != name) return Malformed("its path does not spell its name");
  return path;
}

// (dtype, layout, requires_grad, memory format, pin_memory), and in PyTorch 2.15 the strides, which say nothing of the
// file: it has the elements in order.
absl::Status MetadataDecoder::ReadProperties(PickleNode properties, ShardedItem& item) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleObject* object, Object(properties, "TensorProperties"));
  if (object->state.kind != PickleKind::kTuple || graph_.sequences[object->state.index].size() < 5)
    return Malformed("its properties are not those of a tensor");
  const std::vector<PickleNode>& state = graph_.sequences[object->state.index];
  LOCKSTEP_ASSIGN_OR_RETURN(absl::string_view name, Text(state[0]));
  const tensors::Dtype* dtype = absl::ConsumePrefix(&name, "torch.") ? tensors::FindDtypeNamed(name) : nullptr;
  if (!dtype) return Malformed("its dtype is unknown");
  if (state[2].kind != PickleKind::kBool) return Malformed("its properties are not those of a tensor");
  item.dtype = dtype->type;
  item.requires_grad = state[2].boolean;
  return absl::OkStatus();
}

absl::StatusOr<Box> MetadataDecoder::ReadBox(PickleNode chunk, const std::vector<int64_t>& sizes) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleObject* object, Object(chunk, "ChunkStorageMetadata"));
  Box box;
  LOCKSTEP_ASSIGN_OR_RETURN(box.offsets, Size(Attribute(*object, "offsets")));
  LOCKSTEP_ASSIGN_OR_RETURN(box.sizes, Size(Attribute(*object, "sizes")));
  LOCKSTEP_RETURN_IF_ERROR(CheckInside(box, sizes));
  return box;
}

// Each range of a file belongs to one part, so a list of parts that many tensors share in the pickle is an error.
absl::StatusOr<ShardedChunk> MetadataDecoder::Locate(const ShardedItem& item, Box box) {
  const auto found = stored_.find(StoredKey(item.name, item.is_tensor, box.offsets));
  if (found == stored_.end()) {
    return Malformed(item.is_tensor ? absl::StrCat("no place in a file is given for its part ", ToString(box))
                                    : "no place in a file is given for it");
  }
  const Stored stored = found->second;
  stored_.erase(found);
  const int64_t bytes = item.is_tensor ? ElementsOf(box.sizes) * c10::elementSize(item.dtype) : 0;
  if (stored.length < bytes) {
    return Malformed(
        absl::StrCat("its part ", ToString(box), " has ", bytes, " bytes, but takes ", stored.length, " of a file"));
  }
  return ShardedChunk{std::move(box), std::string(stored.file), stored.offset, stored.length};
}

absl::Status MetadataDecoder::ReadTensor(const PickleObject& tensor, ShardedItem& item) {
  item.is_tensor = true;
  LOCKSTEP_RETURN_IF_ERROR(ReadProperties(Attribute(tensor, "properties"), item));
  LOCKSTEP_ASSIGN_OR_RETURN(item.sizes, Size(Attribute(tensor, "size")));
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes(item.sizes));
  const PickleNode chunks = Attribute(tensor, "chunks");
  if (chunks.kind != PickleKind::kList) return Malformed("its parts are not a list");
  std::vector<Box> boxes;
  for (const PickleNode chunk : graph_.sequences[chunks.index]) {
    LOCKSTEP_ASSIGN_OR_RETURN(Box box, ReadBox(chunk, item.sizes));
    boxes.push_back(box);
    LOCKSTEP_ASSIGN_OR_RETURN(ShardedChunk located, Locate(item, std::move(box)));
    item.chunks.push_back(std::move(located));
  }
  const auto overlap = FindOverlap(boxes);
  if (!overlap) return absl::OkStatus();
  return Malformed(absl::StrCat("its parts ", ToString(boxes[overlap->first]), " and ",
                                ToString(boxes[overlap->second]), " overlap"));
}

absl::StatusOr<ShardedItem> MetadataDecoder::Item(absl::string_view name, PickleNode node) {
  ShardedItem item;
  item.name = std::string(name);
  LOCKSTEP_ASSIGN_OR_RETURN(item.path, Path(name));
  if (Object(node, "BytesStorageMetadata").ok()) {
    LOCKSTEP_ASSIGN_OR_RETURN(ShardedChunk chunk, Locate(item, Box()));
    item.chunks.push_back(std::move(chunk));
    return item;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleObject* tensor, Object(node, "TensorStorageMetadata"));
  LOCKSTEP_RETURN_IF_ERROR(ReadTensor(*tensor, item));
  return item;
}

// No two items share bytes of a file, so the loaded data is never larger than the files.
absl::Status CheckDisjoint(const ShardedMetadata& metadata) {
  std::vector<std::pair<const ShardedChunk*, const ShardedItem*>> order;
  for (const ShardedItem& item : metadata.items) {
    for (const ShardedChunk& chunk : item.chunks) order.emplace_back(&chunk, &item);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first->file, a.first->offset, a.first->length) <
           std::tie(b.first->file, b.first->offset, b.first->length);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const ShardedChunk& before = *order[i - 1].first;
    const ShardedChunk& chunk = *order[i].first;
    if (before.file != chunk.file || before.length <= chunk.offset - before.offset) continue;
    return Malformed(absl::StrCat("items \"", order[i - 1].second->name, "\" and \"", order[i].second->name,
                                  "\" take the same bytes of ", chunk.file));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardedMetadata> MetadataDecoder::Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleObject* root, Object(graph_.root, "Metadata"));
  LOCKSTEP_RETURN_IF_ERROR(CheckVersion(Attribute(*root, "version")));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(ReadStorage(Attribute(*root, "storage_data")), "storage_data"));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(ReadPaths(Attribute(*root, "planner_data")), "planner_data"));
  LOCKSTEP_ASSIGN_OR_RETURN(const PickleDict* items, Dict(Attribute(*root, "state_dict_metadata")));
  ShardedMetadata metadata;
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& [key, value] : items->entries) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view name, Text(key));
    if (!names.insert(name).second) return Malformed(absl::StrCat("item \"", name, "\" occurs twice"));
    absl::StatusOr<ShardedItem> item = Item(name, value);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(item.status(), absl::StrCat("item \"", name, "\"")));
    metadata.items.push_back(*std::move(item));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckDisjoint(metadata));
  return metadata;
}

}  // namespace

absl::StatusOr<ShardedMetadata> DecodeMetadata(absl::string_view pickle, size_t memory_limit) {
  LOCKSTEP_ASSIGN_OR_RETURN(const pickle::PickleGraph graph, pickle::ReadPickle(pickle, memory_limit, Classes()));
  return MetadataDecoder(graph).Run();
}

}  // namespace lockstep::checkpoint::internal
