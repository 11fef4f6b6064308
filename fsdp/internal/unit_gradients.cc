#include "lockstep/fsdp/internal/unit_gradients.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::fsdp::internal {
namespace {

// The gradient's elements in the order of the parameter's memory; undefined if there is none.
at::Tensor FlatGradient(const NamedTensor& parameter) {
  at::Tensor gradient = parameter.tensor.grad();
  if (!gradient.defined()) return gradient;
  if (gradient.layout() != at::kStrided) {
    ThrowIfError(absl::UnimplementedError(
        absl::StrCat("the gradient of ", parameter.name, " is sparse, which fully sharded training does not support")));
  }
  KeepForCurrentStream(gradient);
  if (gradient.strides() != parameter.tensor.strides() || gradient.dtype() != parameter.tensor.dtype())
    gradient = at::empty_strided(parameter.tensor.sizes(), parameter.tensor.strides(), parameter.tensor.options())
                   .copy_(gradient);  // no operator on the parameter, whose values need not be there
  return gradient.as_strided({gradient.numel()}, {1});
}

// The zeros after up to 15 elements, the flag at 15, and the zeros after it.
at::Tensor NewTail(const at::TensorOptions& options) {
  const at::Tensor tail = at::zeros({31}, options);
  tail.narrow(0, 15, 1).fill_(1);
  return tail;
}

// `count` elements of `from` for a buffer's elements from `to` on.
struct Copy {
  int64_t to;
  const at::Tensor* from;
  int64_t begin, count;
};

void CopyAll(const at::Tensor& buffer, const std::vector<Copy>& copies) {
  std::vector<at::Tensor> to, from;  // of which a GPU needs few kernels
  for (const Copy& copy : copies) {
    if (buffer.is_cpu() && copy.from->scalar_type() == buffer.scalar_type()) {
      const size_t size = buffer.element_size();
      memcpy(static_cast<char*>(buffer.mutable_data_ptr()) + copy.to * size,
             static_cast<const char*>(copy.from->const_data_ptr()) + copy.begin * size, copy.count * size);
    } else {
      to.push_back(buffer.narrow(0, copy.to, copy.count));
      from.push_back(copy.from->narrow(0, copy.begin, copy.count));
    }
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
}

// The parts of a chunk's leaf that the ranks add up, by rank.
std::vector<int64_t> BoundsOf(const Mesh& mesh, const UnitLayout& layout, int chunk) {
  std::vector<int64_t> bounds(mesh.group()->size() + 1, 0);
  for (int place = 0; place < mesh.shard_group()->size(); ++place) {
    const int64_t part = (layout.slices[place + 1] - layout.slices[place]) / mesh.replicas();
    const int64_t numel = layout.ChunkNumel(part);
    for (int replica = 0; replica < mesh.replicas(); ++replica)
      bounds[mesh.RankOf(replica, place) + 1] = std::clamp<int64_t>(part - chunk * numel, 0, numel);
  }
  std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
  return bounds;
}

at::TensorOptions ReducedOptions(const ShardedUnit& unit) {
  return unit.parameters[0].tensor.options().dtype(unit.reduce_dtype).requires_grad(false);
}

}  // namespace

UnitGradients::UnitGradients(const Mesh* mesh, ShardedUnit unit)
    : mesh_(mesh),
      unit_(std::move(unit)),
      slice_(at::zeros({Numel(mesh->place())}, ReducedOptions(unit_))),
      accumulated_(unit_.parameters.size()),
      tail_(NewTail(ReducedOptions(unit_))) {
  int64_t begin = 0;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    std::vector<int64_t> bounds = BoundsOf(*mesh, unit_.layout, chunk);
    const int rank = mesh->group()->rank();
    const int64_t numel = bounds[rank + 1] - bounds[rank];
    chunks_.push_back({bounds, comm::TreeScatter::Sum(OwnPart().narrow(0, begin, numel), bounds)});
    begin += numel;
  }
}

int64_t UnitGradients::Numel(int place) const { return unit_.layout.slices[place + 1] - unit_.layout.slices[place]; }

at::Tensor UnitGradients::OwnPart() const { return slice_.view({mesh_->replicas(), -1}).select(0, mesh_->replica()); }

void UnitGradients::Accumulate(size_t parameter) {
  const NamedTensor& named = unit_.parameters[parameter];
  if (named.tensor.scalar_type() == unit_.reduce_dtype) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor gradient = FlatGradient(named);
  if (!gradient.defined()) return;
  at::Tensor& sum = accumulated_[parameter];
  sum = sum.defined() ? sum.add_(gradient) : gradient.to(unit_.reduce_dtype);
  named.tensor.mutable_grad().reset();
}

at::Tensor UnitGradients::LeafIn(const at::Tensor& buffer, int chunk) const {
  return buffer.narrow(0, 0, chunks_[chunk].bounds.back() * slice_.element_size()).view(slice_.scalar_type());
}

comm::TreeScatter::Sum* UnitGradients::sum(int chunk) { return &chunks_[chunk].sum; }

template <typename F>
void UnitGradients::ForParts(const Piece& piece, int chunk, const F& f) const {
  const int64_t first = unit_.layout.slices[piece.rank], part = Numel(piece.rank) / mesh_->replicas();
  const int64_t begin = chunk * unit_.layout.ChunkNumel(part);  // of the chunk, in a part
  for (int replica = 0; replica < mesh_->replicas(); ++replica) {
    const int rank = mesh_->RankOf(replica, piece.rank);
    const std::vector<int64_t>& bounds = chunks_[chunk].bounds;
    const int64_t chunk_begin = first + replica * part + begin;
    const int64_t from = std::max(piece.offset, chunk_begin);
    const int64_t to = std::min(piece.flag() + 16, chunk_begin + bounds[rank + 1] - bounds[rank]);
    if (from < to) f(from - piece.offset, bounds[rank] + from - chunk_begin, to - from);
  }
}

void UnitGradients::CollectGradients() {
  streams_.Await();
  for (size_t k = 0; k < accumulated_.size(); ++k) {
    if (accumulated_[k].defined()) {
      Accumulate(k);
      KeepForCurrentStream(accumulated_[k]);
    } else {
      accumulated_[k] = FlatGradient(unit_.parameters[k]);
    }
  }
}

void UnitGradients::MoveTo(const at::Tensor& leaf, int chunk) {
  if (chunk == 0) CollectGradients();
  std::vector<Copy> copies, tails;
  for (const Piece& piece : unit_.layout.pieces) {
    const at::Tensor& gradient = accumulated_[piece.parameter];
    const int64_t numel = piece.end - piece.begin, gap = piece.flag() - piece.offset - numel;
    ForParts(piece, chunk, [&](int64_t begin, int64_t place, int64_t count) {
      if (!gradient.defined()) {
        leaf.narrow(0, place, count).zero_();
        return;
      }
      const int64_t values = std::clamp<int64_t>(numel - begin, 0, count);
      if (values > 0) copies.push_back({place, &gradient, piece.begin + begin, values});
      if (values < count) tails.push_back({place + values, &tail_, 15 - gap + begin + values - numel, count - values});
    });
  }
  CopyAll(leaf, copies);
  CopyAll(leaf, tails);
  if (chunk + 1 < chunks()) return;
  for (at::Tensor& gradient : accumulated_) gradient.reset();
  for (const NamedTensor& parameter : unit_.parameters) parameter.tensor.mutable_grad().reset();
}

void UnitGradients::StartGather() {
  if (mesh_->replicas() == 1 || slice_.numel() == 0) return;
  gather_ = mesh_->replicate_group()->AllGatherIntoTensorAsync(slice_, OwnPart());
}

absl::Status UnitGradients::FinishGather() {
  std::optional<comm::Work> gather = std::exchange(gather_, std::nullopt);
  return gather ? gather->Wait() : absl::OkStatus();
}

void UnitGradients::KeepEarlier() { earlier_ = earlier_.defined() ? earlier_.add_(slice_) : slice_.clone(); }

void UnitGradients::AddEarlier() {
  if (earlier_.defined()) slice_.copy_(earlier_.add_(slice_));
  earlier_.reset();
}

std::vector<at::Tensor> UnitGradients::Flags() const {
  std::vector<at::Tensor> flags;
  for (const Piece& piece : unit_.layout.pieces) {
    if (piece.rank == mesh_->place())
      flags.push_back(slice_.narrow(0, piece.flag() - unit_.layout.slices[piece.rank], 1));
  }
  return flags;
}

const bool* UnitGradients::SetFlags(const bool* flags) {
  with_flag_.clear();
  for (const Piece& piece : unit_.layout.pieces) {
    if (piece.rank == mesh_->place() && *flags++) with_flag_.insert(piece.flag());
  }
  return flags;
}

at::Tensor UnitGradients::GradientOf(const Piece& piece) const {
  if (!with_flag_.contains(piece.flag())) return {};
  const int64_t first = unit_.layout.slices[mesh_->place()];
  return slice_.narrow(0, piece.offset - first, piece.end - piece.begin).to(unit_.shard_dtype);
}

}  // namespace lockstep::fsdp::internal
