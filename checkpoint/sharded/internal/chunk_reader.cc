#include "lockstep/checkpoint/sharded/internal/chunk_reader.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/archive/reader.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/sharded/internal/boxes.h"

namespace lockstep::checkpoint::internal {
namespace {

using file::ByteSource;

ByteSource PartOf(const ByteSource& file, uint64_t offset, uint64_t size) {
  ByteSource part;
  part.size = size;
  part.read = [read = file.read, offset](uint64_t at, void* to, size_t count) { return read(offset + at, to, count); };
  return part;
}

// The elements in `part` of `tensor`, which covers `whole`.
at::Tensor Narrow(at::Tensor tensor, const Box& whole, const Box& part) {
  for (size_t d = 0; d < part.sizes.size(); ++d) {
    tensor = tensor.narrow(d, part.offsets[d] - whole.offsets[d], part.sizes[d]);
  }
  return tensor;
}

}  // namespace

absl::Status ChunkReader::WantPart(const ShardedItem& item, const Box& box, at::Tensor* to) {
  int64_t found = 0;
  for (const ShardedChunk& chunk : item.chunks) {
    std::optional<Box> shared = Intersect(chunk.box, box);
    if (!shared) continue;
    found += ElementsOf(shared->sizes);
    wants_.push_back({&item, &chunk, *std::move(shared), box, to, nullptr});
  }
  const int64_t wanted = ElementsOf(box.sizes);
  if (found == wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the checkpoint leaves out ", wanted - found, " of the ", wanted,
                                          " elements of its part ", ToString(box)));
}

void ChunkReader::WantValue(const ShardedItem& item, Value* to) {
  wants_.push_back({&item, &item.chunks.front(), Box(), Box(), nullptr, to});
}

absl::Status ChunkReader::Where(const Want& want, const absl::Status& status) const {
  return Annotate(status, absl::StrCat(directory_, "/", want.chunk->file, ": item \"", want.item->name, "\""));
}

absl::StatusOr<ByteSource> ChunkReader::Open(const Want& want) const {
  absl::StatusOr<ByteSource> file = file::OpenFile(absl::StrCat(directory_, "/", want.chunk->file));
  LOCKSTEP_RETURN_IF_ERROR(Where(want, file.status()));
  return file;
}

absl::Status ChunkReader::CheckFiles() const {
  absl::flat_hash_map<absl::string_view, uint64_t> sizes;
  for (const Want& want : wants_) {
    const auto [size, added] = sizes.try_emplace(want.chunk->file, 0);
    if (added) {
      LOCKSTEP_ASSIGN_OR_RETURN(const ByteSource file, Open(want));
      size->second = file.size;
    }
    const uint64_t offset = want.chunk->offset, length = want.chunk->length;
    if (offset <= size->second && length <= size->second - offset) continue;
    return Where(want, absl::DataLossError(absl::StrCat("it is to be at byte ", offset, ", ", length,
                                                        " long, but the file has ", size->second, " bytes")));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> ChunkReader::ReadChunk(const ByteSource& file, const Want& want) const {
  const ByteSource archive = PartOf(file, want.chunk->offset, want.chunk->length);
  if (!want.item->is_tensor) return archive::ReadArchive(archive, options_);
  LoadOptions options = options_;
  options.map_location = "cpu";
  LOCKSTEP_ASSIGN_OR_RETURN(Value value, archive::ReadArchive(archive, options));
  if (value.is_tensor() && value.tensor().scalar_type() == want.item->dtype &&
      value.tensor().sizes() == want.chunk->box.sizes) {
    return value;
  }
  const std::string found = value.is_tensor() ? absl::StrCat(c10::toString(value.tensor().scalar_type()), " ",
                                                             ToString(value.tensor().sizes().vec()))
                                              : std::string(value.type_name());
  return absl::DataLossError(absl::StrCat("expected ", c10::toString(want.item->dtype), " ",
                                          ToString(want.chunk->box.sizes), ", found ", found));
}

absl::Status ChunkReader::Deliver(const Want& want, const Value& value) const {
  if (want.value) {
    *want.value = value;
    return absl::OkStatus();
  }
  return TorchStatus("copy", [&] {
    const c10::NoGradGuard no_grad;
    const at::Tensor from = Narrow(value.tensor().detach(), want.chunk->box, want.shared);
    Narrow(want.tensor->detach(), want.part, want.shared).copy_(from);
  });
}

absl::Status ChunkReader::Read() {
  std::stable_sort(wants_.begin(), wants_.end(), [](const Want& a, const Want& b) {
    return std::tie(a.chunk->file, a.chunk->offset) < std::tie(b.chunk->file, b.chunk->offset);
  });
  ByteSource file;
  Value value;
  for (size_t i = 0; i < wants_.size(); ++i) {
    const Want& want = wants_[i];
    const Want* before = i == 0 ? nullptr : &wants_[i - 1];
    if (!before || before->chunk->file != want.chunk->file) {
      LOCKSTEP_ASSIGN_OR_RETURN(file, Open(want));
    }
    if (!before || before->chunk != want.chunk) {
      value = Value();  // so that memory holds one at a time
      absl::StatusOr<Value> read = ReadChunk(file, want);
      LOCKSTEP_RETURN_IF_ERROR(Where(want, read.status()));
      value = *std::move(read);
    }
    LOCKSTEP_RETURN_IF_ERROR(Where(want, Deliver(want, value)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::internal
