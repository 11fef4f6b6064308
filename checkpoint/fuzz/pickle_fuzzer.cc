// Reads any bytes as a pickle. An accepted graph refers only to existing entries, and its memory is within the limit.

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/tools/fuzz/require.h"

namespace lockstep::checkpoint::pickle {
namespace {

constexpr size_t kMemoryLimit = size_t{8} << 20;

void CheckNode(const PickleGraph& graph, const PickleNode& node) {
  switch (node.kind) {
    case PickleKind::kString:
    case PickleKind::kBytes:
      return fuzz::Require(node.index < graph.strings.size(), "a string is in the table");
    case PickleKind::kList:
    case PickleKind::kTuple:
      return fuzz::Require(node.index < graph.sequences.size(), "a sequence is in the table");
    case PickleKind::kDict:
      return fuzz::Require(node.index < graph.dicts.size(), "a dict is in the table");
    case PickleKind::kTensor:
      return fuzz::Require(node.index < graph.tensors.size(), "a tensor is in the table");
    case PickleKind::kObject:
      return fuzz::Require(node.index < graph.objects.size(), "an object is in the table");
    case PickleKind::kStorage:
      return fuzz::Require(node.index < graph.storages.size(), "a storage is in the table");
    default:
      return;
  }
}

size_t MemoryOf(const PickleGraph& graph) {
  size_t bytes = sizeof(absl::string_view) * graph.strings.size() + sizeof(PickleStorage) * graph.storages.size() +
                 sizeof(PickleObject) * graph.objects.size();
  for (const auto& items : graph.sequences)
    bytes += sizeof(std::vector<PickleNode>) + sizeof(PickleNode) * items.size();
  for (const PickleDict& dict : graph.dicts) bytes += sizeof(dict) + 2 * sizeof(PickleNode) * dict.entries.size();
  for (const PickleTensor& tensor : graph.tensors) {
    bytes += sizeof(tensor) + sizeof(int64_t) * (tensor.sizes.size() + tensor.strides.size());
  }
  return bytes;
}

void Check(const PickleGraph& graph) {
  CheckNode(graph, graph.root);
  for (const auto& items : graph.sequences) {
    for (const PickleNode& item : items) CheckNode(graph, item);
  }
  for (const PickleDict& dict : graph.dicts) {
    for (const auto& [key, value] : dict.entries) {
      CheckNode(graph, key);
      CheckNode(graph, value);
    }
    CheckNode(graph, dict.attributes);
  }
  for (const PickleObject& object : graph.objects) {
    CheckNode(graph, object.arguments);
    CheckNode(graph, object.state);
  }
  for (const PickleTensor& tensor : graph.tensors) {
    fuzz::Require(tensor.storage < graph.storages.size() || tensor.storage == PickleTensor::kNoStorage,
                  "a tensor's storage is in the table");
    CheckNode(graph, tensor.attributes);
  }
  fuzz::Require(MemoryOf(graph) <= kMemoryLimit, "memory stays within the limit");
}

// Classes of torch.distributed.checkpoint's .metadata, which pickles create in different ways.
const PickleClasses& Classes() {
  static constexpr char kModule[] = "torch.distributed.checkpoint.metadata";
  static const auto& classes = *new PickleClasses{
      {kModule, "Metadata"},
      {kModule, "TensorStorageMetadata"},
      {kModule, "BytesStorageMetadata"},
      {kModule, "ChunkStorageMetadata"},
      {kModule, "TensorProperties"},
      {kModule, "MetadataIndex"},
      {kModule, "StorageMeta"},
      {kModule, "_MEM_FORMAT_ENCODING"},
      {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
      {"torch.serialization", "_get_layout"},
      {"builtins", "getattr"},
      {"pathlib", "PosixPath"},
  };
  return classes;
}

void Run(absl::string_view bytes, const PickleClasses& classes) {
  const auto graph = ReadPickle(bytes, kMemoryLimit, classes);
  if (!graph.ok()) return;
  Check(*graph);
  fuzz::Require(graph->objects.empty() || !classes.empty(), "objects are only of classes that are allowed");
}

}  // namespace
}  // namespace lockstep::checkpoint::pickle

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::checkpoint::pickle;  // NOLINT(google-build-using-namespace)
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  Run(bytes, {});
  Run(bytes, Classes());
  return 0;
}
