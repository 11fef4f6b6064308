#include "lockstep/fsdp/internal/paged_unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::fsdp::internal {

at::Tensor PagedUnit::Elements(const at::Tensor& bytes, int64_t numel) const {
  const at::Tensor& first = unit_.parameters[0].tensor;
  return bytes.narrow(0, 0, numel * first.element_size()).view(first.scalar_type());
}

void PagedUnit::ForPieces(const at::Tensor& all, const std::function<at::Tensor(int parameter)>& flat,
                          const std::function<void(const at::Tensor& shared, const at::Tensor& own)>& copy) const {
  for (const Piece& piece : unit_.layout.pieces) {
    if (piece.is_second) continue;
    const int64_t count = piece.end - piece.begin;
    copy(all.narrow(0, piece.rank * unit_.layout.share + piece.in_share, count),
         flat(piece.parameter).narrow(0, piece.begin, count));
  }
}

absl::Status PagedUnit::ReserveAddresses() {
  for (const NamedTensor& parameter : unit_.parameters) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        freed_.emplace_back(),
        ReserveFreedAddress(mesh_->group()->rank(), parameter.name, static_cast<int64_t>(parameter.tensor.nbytes())));
  }
  return absl::OkStatus();
}

absl::Status PagedUnit::Distribute(const std::shared_ptr<PagedUnit>& self, BufferPool& buffers,
                                   std::function<void(PagedUnit&)> need) {
  const c10::NoGradGuard no_grad;
  const at::Tensor& first = unit_.parameters[0].tensor;
  share_ = at::zeros({unit_.layout.share}, first.options().requires_grad(false));
  std::vector<at::Tensor> shares;
  const at::Tensor buffer = buffers.Take();
  if (mesh_->place() == 0) {
    const at::Tensor all = Elements(buffer, elements());
    ForPieces(
        all,
        [&](int k) {
          const at::Tensor& parameter = unit_.parameters[k].tensor;
          return parameter.detach().as_strided({parameter.numel()}, {1});
        },
        [](const at::Tensor& shared, const at::Tensor& own) { shared.copy_(own); });
    for (int place = 0; place < mesh_->shard_group()->size(); ++place)
      shares.push_back(all.narrow(0, place * unit_.layout.share, unit_.layout.share).view(at::kByte));
  }
  LOCKSTEP_RETURN_IF_ERROR(mesh_->shard_group()->Scatter(share_.view(at::kByte), shares, 0));
  buffers.Give(buffer);
  need_ = std::move(need);
  for (const NamedTensor& parameter : unit_.parameters) MakePageable(parameter.tensor, self);
  Free();
  return absl::OkStatus();
}

void PagedUnit::Keep(const std::shared_ptr<PagedUnit>& self, std::function<void(PagedUnit&)> need) {
  const c10::NoGradGuard no_grad;
  need_ = std::move(need);
  for (const NamedTensor& parameter : unit_.parameters) {
    const at::Tensor& tensor = parameter.tensor;
    // Its memory may be that of pages that all parameters share.
    ReplaceData(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().requires_grad(false)));
    MakePageable(tensor, self);
  }
  Free();
}

void PagedUnit::Forsake() {
  if (present()) Free();
  need_ = nullptr;
  // A parameter's memory owns this object.
  std::vector<NamedTensor> parameters = std::exchange(unit_.parameters, {{unit_.parameters[0].name, at::Tensor()}});
}

void PagedUnit::BeginUse() {
  if (!need_) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        "an operator has ", name(), ", whose values went with its fsdp::FullyShardedDataParallel: keep that alive")));
  }
  ++uses_;
  try {
    need_(*this);
    if (present()) streams_.Add(whole_.device());
  } catch (...) {
    --uses_;
    throw;
  }
}

at::Tensor PagedUnit::NewMemory() const {
  return at::empty({bytes()}, at::TensorOptions(at::kByte).device(unit_.parameters[0].tensor.device()));
}

std::string PagedUnit::Replaced() const {
  for (const NamedTensor& parameter : unit_.parameters) {
    if (!IsPageable(parameter.tensor, this)) return parameter.name;
  }
  return "";
}

std::string PagedUnit::Written() const {
  for (size_t k = 0; k < versions_.size(); ++k) {
    if (unit_.parameters[k].tensor._version() != versions_[k]) return unit_.parameters[k].name;
  }
  return "";
}

int64_t PagedUnit::own_bytes() const {
  if (share_.defined()) return static_cast<int64_t>(share_.nbytes());
  int64_t bytes = 0;
  for (const auto& [place, shard] : unit_.kept) bytes += static_cast<int64_t>(shard.nbytes());
  return bytes;
}

at::Tensor PagedUnit::Shard(const Piece& piece) const {
  if (!share_.defined()) return unit_.Kept(piece);
  return share_.narrow(0, piece.in_share, piece.end - piece.begin);
}

// Kept shards are packed first.
comm::Work PagedUnit::GatherShares(const at::Tensor& all) const {
  comm::ProcessGroup& group = *mesh_->shard_group();
  if (share_.defined()) return group.AllGatherIntoTensorAsync(all.narrow(0, 0, bytes()), share_.view(at::kByte));
  const at::Tensor share = at::empty({unit_.layout.share}, unit_.parameters[0].tensor.options().requires_grad(false));
  for (const Piece& piece : unit_.layout.pieces) {
    if (piece.rank != mesh_->place() || piece.is_second) continue;
    share.narrow(0, piece.in_share, piece.end - piece.begin).copy_(Shard(piece));
  }
  return group.AllGatherIntoTensorAsync(all.narrow(0, 0, bytes()), share.view(at::kByte));
}

absl::Status PagedUnit::JoinGather(BufferPool& buffers) const {
  const at::Tensor buffer = buffers.Take();
  LOCKSTEP_RETURN_IF_ERROR(GatherShares(buffer).Wait());
  buffers.Give(buffer);
  return absl::OkStatus();
}

absl::Status PagedUnit::Gather(const at::Tensor& whole, BufferPool& buffers) {
  const at::Tensor shares = unit_.layout.in_order ? whole : buffers.Take();
  LOCKSTEP_RETURN_IF_ERROR(GatherShares(shares).Wait());
  Place(shares, whole, buffers);
  return absl::OkStatus();
}

PagedUnit::Flight PagedUnit::StartGather(BufferPool& buffers) const {
  at::Tensor buffer = buffers.Take();
  comm::Work work = GatherShares(buffer);
  return {std::move(buffer), std::move(work)};
}

absl::Status PagedUnit::FinishGather(Flight flight, BufferPool& buffers) {
  LOCKSTEP_RETURN_IF_ERROR(flight.work.Wait());
  Place(flight.buffer, unit_.layout.in_order ? flight.buffer : buffers.Take(), buffers);
  return absl::OkStatus();
}

// All ranks' shares become the parameters' values.
void PagedUnit::Place(const at::Tensor& shares, const at::Tensor& whole, BufferPool& buffers) {
  const at::Tensor memory = Elements(whole, unit_.layout.numel);
  const auto flat = [&](int k) {
    return memory.narrow(0, unit_.layout.offsets[k], unit_.parameters[k].tensor.numel());
  };
  if (!unit_.layout.in_order) {
    ForPieces(Elements(shares, elements()), flat,
              [](const at::Tensor& shared, const at::Tensor& own) { own.copy_(shared); });
    buffers.Give(shares);
  }
  Show(whole);
}

void PagedUnit::Assemble(const at::Tensor& whole) {
  const at::Tensor memory = Elements(whole, unit_.layout.numel);
  for (const Piece& piece : unit_.layout.pieces) {
    if (piece.is_second) continue;
    memory.narrow(0, unit_.layout.offsets[piece.parameter] + piece.begin, piece.end - piece.begin).copy_(Shard(piece));
  }
  Show(whole);
}

void PagedUnit::Show(const at::Tensor& whole) {
  const at::Tensor memory = Elements(whole, unit_.layout.numel);
  versions_.clear();
  for (size_t k = 0; k < unit_.parameters.size(); ++k) {
    const at::Tensor& parameter = unit_.parameters[k].tensor;
    SetData(parameter, memory.narrow(0, unit_.layout.offsets[k], parameter.numel()).mutable_data_ptr());
    versions_.push_back(parameter._version());
  }
  whole_ = whole;
  streams_.Add(whole.device());
}

void PagedUnit::KeepWritten() {
  const at::Tensor memory = Elements(whole_, unit_.layout.numel);
  for (const Piece& piece : unit_.layout.pieces) {
    if (piece.rank != mesh_->place()) continue;
    Shard(piece).copy_(memory.narrow(0, unit_.layout.offsets[piece.parameter] + piece.begin, piece.end - piece.begin));
  }
}

at::Tensor PagedUnit::Free() {
  for (size_t k = 0; k < unit_.parameters.size(); ++k)
    SetData(unit_.parameters[k].tensor, freed_.empty() ? nullptr : freed_[k].get());
  versions_.clear();
  streams_.Await();
  if (present()) KeepForCurrentStream(whole_);
  return std::exchange(whole_, at::Tensor());
}

}  // namespace lockstep::fsdp::internal
