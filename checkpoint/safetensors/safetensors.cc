#include "lockstep/checkpoint/safetensors/safetensors.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/in_threads.h"
#include "lockstep/checkpoint/file/path.h"
#include "lockstep/checkpoint/file/text.h"
#include "lockstep/checkpoint/safetensors/header.h"
#include "lockstep/checkpoint/tensors/dtype.h"
#include "lockstep/checkpoint/tensors/placement.h"

namespace lockstep::checkpoint {
namespace {

using safetensors::SafetensorsHeader;
using safetensors::SafetensorsTensor;

std::string NameOf(const Value& key) { return KeyPath(std::vector<Value>{key}).ToString(); }

absl::StatusOr<SafetensorsTensor> Describe(const Value& key, const Value& value) {
  if (!key.is_string())
    return absl::InvalidArgumentError(absl::StrCat("expected a str as name, found ", key.type_name()));
  if (!file::IsUtf8(key.string_value())) return absl::InvalidArgumentError("a name that is not UTF-8");
  if (key.string_value() == safetensors::kSafetensorsMetadata) {
    return absl::InvalidArgumentError("the format uses this name for its metadata");
  }
  if (!value.is_tensor()) {
    return absl::InvalidArgumentError(absl::StrCat("expected Tensor, found ", value.type_name(),
                                                   "; a safetensors file holds a flat dict of tensors"));
  }
  const at::Tensor& tensor = value.tensor();
  LOCKSTEP_ASSIGN_OR_RETURN(const tensors::Dtype* dtype, tensors::DtypeOf(tensor));
  const auto* found = safetensors::FindSafetensorsDtype(dtype->name);
  if (!found) {
    return absl::UnimplementedError(absl::StrCat("the format does not hold tensors of dtype torch.", dtype->name));
  }
  return SafetensorsTensor{key.string_value(), found, tensor.sizes().vec(), 0, tensor.nbytes()};
}

// The addresses from a tensor's first element to the end of its last.
struct Memory {
  c10::Device device;
  const char* begin;
  const char* end;
  const Value* name;
};

Memory MemoryOf(const Value& name, const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const char* const begin = static_cast<const char*>(tensor.const_data_ptr());
  return {tensor.device(), begin, begin + (last + 1) * tensor.element_size(), &name};
}

// Both would be written, and would load as two tensors that no longer share memory.
absl::Status CheckNothingShared(const Value& tensors) {
  std::vector<Memory> used;
  for (const auto& [name, tensor] : tensors.entries()) {
    if (tensor.tensor().numel() > 0) used.push_back(MemoryOf(name, tensor.tensor()));
  }
  const auto key = [](const Memory& memory) {
    return std::make_tuple(memory.device.str(), reinterpret_cast<uintptr_t>(memory.begin));
  };
  std::stable_sort(used.begin(), used.end(), [&](const Memory& a, const Memory& b) { return key(a) < key(b); });
  for (size_t i = 1; i < used.size(); ++i) {
    if (used[i - 1].device != used[i].device || used[i - 1].end <= used[i].begin) continue;
    return absl::InvalidArgumentError(absl::StrCat(NameOf(*used[i - 1].name), " and ", NameOf(*used[i].name),
                                                   " share memory, which the format cannot express; leave one out, or "
                                                   "clone() it"));
  }
  return absl::OkStatus();
}

absl::Status CheckMetadata(const SafetensorsMetadata& metadata) {
  absl::flat_hash_set<absl::string_view> keys;
  for (const auto& [key, value] : metadata) {
    if (!file::IsUtf8(key) || !file::IsUtf8(value)) {
      return absl::InvalidArgumentError(absl::StrCat("metadata ", NameOf(key), ": a string that is not UTF-8"));
    }
    if (!keys.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat("metadata ", NameOf(key), " stands twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsHeader> MakeHeader(const Value& tensors, const SafetensorsMetadata& metadata,
                                             bool has_metadata) {
  if (!tensors.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a dict of tensors, found ", tensors.type_name()));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckMetadata(metadata));
  SafetensorsHeader header;
  header.metadata = metadata;
  header.has_metadata = has_metadata;
  for (const auto& [key, value] : tensors.entries()) {
    absl::StatusOr<SafetensorsTensor> tensor = Describe(key, value);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(tensor.status(), NameOf(key)));
    header.tensors.push_back(*std::move(tensor));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckNothingShared(tensors));
  safetensors::PlaceSafetensors(header.tensors);
  return header;
}

absl::Status SaveTo(const std::string& path, const Value& tensors, const SafetensorsHeader& header,
                    const SaveOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string start, safetensors::SafetensorsHeaderBytes(header));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto file, file::AtomicFile::Create(path, options.sync));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(start.data(), start.size()));
  for (const SafetensorsTensor& tensor : header.tensors) {
    const at::Tensor elements = tensors::Elements(tensors.Find(tensor.name)->tensor());
    LOCKSTEP_RETURN_IF_ERROR(file->Append(elements.const_data_ptr(), elements.nbytes()));
  }
  return file->Commit();
}

// A part of the file to read, and its destination.
struct Read {
  const SafetensorsTensor* tensor;
  char* to;
};

absl::Status ReadAll(const file::ByteSource& source, uint64_t data, const std::vector<Read>& reads) {
  std::vector<uint64_t> sizes;
  for (const Read& read : reads) sizes.push_back(read.tensor->end - read.tensor->begin);
  const std::vector<file::Piece> pieces = file::CutInPieces(sizes);
  std::vector<absl::Status> found(pieces.size());
  file::ForEachInThreads(pieces, [&](size_t i) {
    const Read& read = reads[pieces[i].whole];
    const uint64_t offset = data + read.tensor->begin + pieces[i].begin;
    found[i] = source.read(offset, read.to + pieces[i].begin, pieces[i].count);
  });
  for (size_t i = 0; i < pieces.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(found[i], NameOf(reads[pieces[i].whole].tensor->name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Allocate(const SafetensorsTensor& tensor) {
  return tensors::HostTensor(tensor.shape, tensors::FindDtypeNamed(tensor.dtype->torch)->type);
}

absl::StatusOr<Value> ReadTensors(const file::ByteSource& source, const SafetensorsHeader& header,
                                  const MapLocation& map_location) {
  std::vector<Read> reads;
  std::vector<Value::Entry> entries;
  for (const SafetensorsTensor& tensor : header.tensors) {
    const absl::StatusOr<c10::Device> device = tensors::DeviceFor(c10::kCPU, map_location);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(device.status(), NameOf(tensor.name)));
    absl::StatusOr<at::Tensor> loaded = Allocate(tensor);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(loaded.status(), NameOf(tensor.name)));
    const Read read{&tensor, static_cast<char*>(loaded->data_ptr())};
    if (device->is_cpu()) {
      reads.push_back(read);
    } else {
      // Read immediately, so that host memory holds one at a time.
      LOCKSTEP_RETURN_IF_ERROR(ReadAll(source, header.data, {read}));
      LOCKSTEP_ASSIGN_OR_RETURN(*loaded, TorchStatusOr(NameOf(tensor.name), [&] { return loaded->to(*device); }));
    }
    entries.emplace_back(tensor.name, *std::move(loaded));
  }
  LOCKSTEP_RETURN_IF_ERROR(ReadAll(source, header.data, reads));
  return Value::Dict(entries);
}

absl::StatusOr<Safetensors> LoadFrom(const std::string& path, const LoadOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const file::ByteSource source, file::OpenFile(path));
  LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsHeader header, safetensors::ReadSafetensorsHeader(source, options.memory_limit));
  LOCKSTEP_ASSIGN_OR_RETURN(Value tensors, ReadTensors(source, header, options.map_location));
  return Safetensors{std::move(tensors), std::move(header.metadata), header.has_metadata};
}

}  // namespace

absl::Status SaveSafetensors(absl::string_view path, const Value& tensors, const SafetensorsMetadata& metadata,
                             const SaveOptions& options) {
  return file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsHeader header, MakeHeader(tensors, metadata, false));
    return SaveTo(std::string(path), tensors, header, options);
  });
}

absl::Status SaveSafetensors(absl::string_view path, const Safetensors& file, const SaveOptions& options) {
  return file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                              MakeHeader(file.tensors, file.metadata, file.has_metadata));
    return SaveTo(std::string(path), file.tensors, header, options);
  });
}

absl::StatusOr<Safetensors> LoadSafetensors(absl::string_view path, const LoadOptions& options) {
  absl::StatusOr<Safetensors> loaded;
  LOCKSTEP_RETURN_IF_ERROR(file::AtPath(path, [&] {
    loaded = LoadFrom(std::string(path), options);
    return loaded.status();
  }));
  return loaded;
}

}  // namespace lockstep::checkpoint
