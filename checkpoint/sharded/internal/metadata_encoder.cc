#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/checkpoint/pickle/writer.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::internal {
namespace {

constexpr char kModule[] = "torch.distributed.checkpoint.metadata";

class MetadataEncoder {
 public:
  std::string Run(const ShardedMetadata& metadata) &&;

 private:
  void New(const char* module, const char* name);
  template <typename Write>
  void Attribute(const char* name, Write write);
  template <typename WriteOne>
  void DictOf(const ShardedMetadata& metadata, WriteOne write);
  void Size(const std::vector<int64_t>& size);
  void Item(const ShardedItem& item);
  void Properties(const ShardedItem& item);
  void Chunk(const Box& box);
  void Path(const std::vector<Value>& path);
  void Index(const ShardedItem& item, size_t chunk);
  void StorageInfo(const ShardedChunk& chunk);
  void StorageMeta();

  pickle::PickleWriter pickle_;
};

// An object whose state follows, between Attributes and Build.
void MetadataEncoder::New(const char* module, const char* name) {
  pickle_.Global(module, name);
  pickle_.EmptyTuple();
  pickle_.NewObject();
}

template <typename Write>
void MetadataEncoder::Attribute(const char* name, Write write) {
  pickle_.String(name);
  write();
}

// Writes a dict. `write` writes the entries of each item.
template <typename WriteOne>
void MetadataEncoder::DictOf(const ShardedMetadata& metadata, WriteOne write) {
  pickle_.EmptyDict();
  for (const ShardedItem& item : metadata.items) {
    pickle_.Mark();
    write(item);
    pickle_.SetItems();
  }
}

void MetadataEncoder::Size(const std::vector<int64_t>& size) {
  pickle_.Global("torch", "Size");
  pickle_.Mark();
  for (const int64_t extent : size) pickle_.Int(extent);
  pickle_.Tuple();
  pickle_.Tuple1();
  pickle_.Reduce();
}

// TensorProperties.__getstate__: dtype, layout, requires_grad, memory_format, pin_memory.
void MetadataEncoder::Properties(const ShardedItem& item) {
  New(kModule, "TensorProperties");
  pickle_.Mark();
  pickle_.Global("torch", tensors::FindDtype(item.dtype)->name);
  pickle_.Global("torch.serialization", "_get_layout");
  pickle_.String("torch.strided");
  pickle_.Tuple1();
  pickle_.Reduce();
  pickle_.Bool(item.requires_grad);
  pickle_.Global(kModule, "_MEM_FORMAT_ENCODING");
  pickle_.Int(0);  // TORCH_CONTIGUOUS_FORMAT
  pickle_.Tuple1();
  pickle_.Reduce();
  pickle_.Bool(false);
  pickle_.Tuple();
  pickle_.Build();
}

void MetadataEncoder::Chunk(const Box& box) {
  New(kModule, "ChunkStorageMetadata");
  pickle_.EmptyDict();
  pickle_.Mark();
  Attribute("offsets", [&] { Size(box.offsets); });
  Attribute("sizes", [&] { Size(box.sizes); });
  pickle_.SetItems();
  pickle_.Build();
}

void MetadataEncoder::Item(const ShardedItem& item) {
  if (!item.is_tensor) return New(kModule, "BytesStorageMetadata");
  New(kModule, "TensorStorageMetadata");
  pickle_.EmptyDict();
  pickle_.Mark();
  Attribute("properties", [&] { Properties(item); });
  Attribute("size", [&] { Size(item.sizes); });
  Attribute("chunks", [&] {
    pickle_.EmptyList();
    pickle_.Mark();
    for (const ShardedChunk& chunk : item.chunks) Chunk(chunk.box);
    pickle_.Appends();
  });
  pickle_.SetItems();
  pickle_.Build();
}

void MetadataEncoder::Path(const std::vector<Value>& path) {
  pickle_.Mark();
  for (const Value& step : path) {
    if (step.is_int()) {
      pickle_.Int(step.int_value());
    } else {
      pickle_.String(step.string_value());
    }
  }
  pickle_.Tuple();
}

// MetadataIndex: `index` is a hint for the position of the part in the list of chunks.
void MetadataEncoder::Index(const ShardedItem& item, size_t chunk) {
  New(kModule, "MetadataIndex");
  pickle_.EmptyDict();
  pickle_.Mark();
  Attribute("fqn", [&] { pickle_.String(item.name); });
  if (item.is_tensor) {
    Attribute("index", [&] { pickle_.Int(chunk); });
    Attribute("offset", [&] { Size(item.chunks[chunk].box.offsets); });
  } else {
    Attribute("index", [&] { pickle_.None(); });
  }
  pickle_.SetItems();
  pickle_.Build();
}

void MetadataEncoder::StorageInfo(const ShardedChunk& chunk) {
  New("torch.distributed.checkpoint.filesystem", "_StorageInfo");
  pickle_.EmptyDict();
  pickle_.Mark();
  Attribute("relative_path", [&] { pickle_.String(chunk.file); });
  Attribute("offset", [&] { pickle_.Int(chunk.offset); });
  Attribute("length", [&] { pickle_.Int(chunk.length); });
  pickle_.SetItems();
  pickle_.Build();
}

// Omits the path and the random number that Python writes here, so that equal states give equal files.
void MetadataEncoder::StorageMeta() {
  New(kModule, "StorageMeta");
  pickle_.EmptyDict();
  pickle_.Mark();
  for (const char* name : {"checkpoint_id", "save_id", "load_id"}) Attribute(name, [&] { pickle_.None(); });
  Attribute("modules", [&] { pickle_.EmptyList(); });
  pickle_.SetItems();
  pickle_.Build();
}

std::string MetadataEncoder::Run(const ShardedMetadata& metadata) && {
  New(kModule, "Metadata");
  pickle_.EmptyDict();
  pickle_.Mark();
  Attribute("state_dict_metadata", [&] {
    DictOf(metadata, [&](const ShardedItem& item) {
      pickle_.String(item.name);
      Item(item);
    });
  });
  Attribute("planner_data", [&] {
    DictOf(metadata, [&](const ShardedItem& item) {
      pickle_.String(item.name);
      Path(item.path);
    });
  });
  Attribute("storage_data", [&] {
    DictOf(metadata, [&](const ShardedItem& item) {
      for (size_t i = 0; i < item.chunks.size(); ++i) {
        Index(item, i);
        StorageInfo(item.chunks[i]);
      }
    });
  });
  Attribute("storage_meta", [&] { StorageMeta(); });
  Attribute("version", [&] { pickle_.String("1.0.0"); });
  pickle_.SetItems();
  pickle_.Build();
  return std::move(pickle_).Finish();
}

}  // namespace

std::string EncodeMetadata(const ShardedMetadata& metadata) { return MetadataEncoder().Run(metadata); }

std::string JoinPath(const std::vector<Value>& path) {
  return absl::StrJoin(path, ".", [](std::string* out, const Value& step) {
    if (step.is_int()) {
      absl::StrAppend(out, step.int_value());
    } else {
      absl::StrAppend(out, step.string_value());
    }
  });
}

}  // namespace lockstep::checkpoint::internal
