#include "lockstep/checkpoint/sharded/internal/chunk_writer.h"

#include <ATen/core/Tensor.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/archive/writer.h"

namespace lockstep::checkpoint::internal {
namespace {

// Without the gradient flag, as DCP writes it.
at::Tensor OwnElements(const at::Tensor& tensor) {
  at::Tensor own = tensor.detach().cpu();
  return own.has_storage() && own.storage().nbytes() != own.nbytes() ? own.clone() : own;
}

}  // namespace

absl::Status ChunkWriter::Append(const Value& value) {
  archive::EncodedValue encoded;
  {
    Value own = value;
    if (value.is_tensor()) {
      LOCKSTEP_ASSIGN_OR_RETURN(own, TorchStatusOr("", [&] { return Value(OwnElements(value.tensor())); }));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(encoded, archive::Encode(own));
  }
  if (!file_) {
    LOCKSTEP_ASSIGN_OR_RETURN(file_, file::AtomicFile::Create(absl::StrCat(directory_, "/", name_), sync_, system_));
  }
  const file::ByteSink sink = [this](const void* from, size_t count) {
    position_ += count;
    return file_->Append(from, count);
  };
  return archive::WriteArchive(sink, "archive", encoded);
}

absl::StatusOr<ShardedChunk> ChunkWriter::Write(const Value& value, Box box) {
  const int64_t start = position_;
  LOCKSTEP_RETURN_IF_ERROR(Annotate(Append(value), name_));
  return ShardedChunk{std::move(box), name_, start, position_ - start};
}

absl::Status ChunkWriter::Commit() {
  if (!file_) return absl::OkStatus();
  // It may fail after the file is in place.
  committed_ = true;
  return Annotate(file_->Commit(), name_);
}

void ChunkWriter::Remove() {
  file_.reset();
  if (committed_) unlink(absl::StrCat(directory_, "/", name_).c_str());
}

}  // namespace lockstep::checkpoint::internal
