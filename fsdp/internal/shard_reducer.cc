#include "lockstep/fsdp/internal/shard_reducer.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::fsdp::internal {
namespace {

class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void()> callback) : callback_(std::move(callback)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    callback_();
    return outputs;
  }

 private:
  const std::function<void()> callback_;
};

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

}  // namespace

ShardReducer::ShardReducer(const Mesh* mesh, ParameterMemory* memory, int leaves, std::vector<ShardedUnit> units)
    : mesh_(mesh),
      memory_(memory),
      device_(units[0].parameters[0].tensor.device()),
      scatter_(mesh->group(), leaves, device_.type()),
      stream_(device_) {
  std::vector<std::pair<size_t, size_t>> places;  // of each parameter: its unit, and its place in it
  for (ShardedUnit& sharded : units) {
    const std::vector<int64_t>& slices = sharded.layout.slices;
    const at::Tensor& first = sharded.parameters[0].tensor;
    const int64_t own = slices[mesh->place() + 1] - slices[mesh->place()], part = own / mesh->replicas();
    const size_t size = sharded.parameters.size();
    for (size_t place = 0; place < size; ++place) {
      parameters_.push_back(sharded.parameters[place]);
      places.emplace_back(units_.size(), place);
    }
    const at::TensorOptions options = first.options().dtype(sharded.reduce_dtype).requires_grad(false);
    const at::Tensor gradient = at::zeros({own}, options);
    std::vector<int64_t> bounds = BoundsOf(sharded.layout);
    comm::TreeScatter::Sum sum(gradient.narrow(0, mesh->replica() * part, part), bounds);
    units_.push_back({std::move(sharded),
                      std::move(bounds),
                      gradient,
                      std::move(sum),
                      std::nullopt,
                      at::Tensor(),
                      size,
                      std::vector<at::Tensor>(size),
                      NewTail(options),
                      StreamUses(),
                      {}});
  }
  memory->buffers().Reserve(std::min(memory->reductions(), units_.size()));
  memory->BeforeUse([this] {
    if (running_) LaunchReady();
  });
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters_) tensors.push_back(parameter.tensor);
  hooks_ = std::make_unique<ddp::internal::AccumulatorHooks>(std::move(tensors), [this, places](int index) {
    return std::make_unique<GradientHook>([this, place = places[index]] { OnGradient(place.first, place.second); });
  });
}

std::vector<int64_t> ShardReducer::BoundsOf(const UnitLayout& layout) const {
  std::vector<int64_t> bounds(mesh_->group()->size() + 1, 0);
  for (int replica = 0; replica < mesh_->replicas(); ++replica) {
    for (int place = 0; place < mesh_->shard_group()->size(); ++place)
      bounds[mesh_->RankOf(replica, place) + 1] = (layout.slices[place + 1] - layout.slices[place]) / mesh_->replicas();
  }
  std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
  return bounds;
}

const NamedTensor* ShardReducer::Replaced() const {
  const int replaced = hooks_->Replaced();
  return replaced < 0 ? nullptr : &parameters_[replaced];
}

void ShardReducer::OnGradient(size_t unit, size_t parameter) {
  units_[unit].streams.Add(device_);
  if (!sync_) return Accumulate(units_[unit], parameter);
  if (!running_) {
    running_ = true;
    ddp::internal::CallAtEndOfBackward([this] { EndBackward(); });
  }
  // Autograd has the last gradient until this hook returns.
  const bool later = memory_->reductions() == 0;
  if (later) LaunchReady();
  if (--units_[unit].missing == 0) memory_->EndUnit(unit);
  if (!later) LaunchReady();
}

// As Python's fully_shard, whose bits these are.
void ShardReducer::Accumulate(Unit& unit, size_t parameter) {
  const NamedTensor& named = unit.sharded.parameters[parameter];
  if (named.tensor.scalar_type() == unit.sharded.reduce_dtype) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor gradient = FlatGradient(named);
  if (!gradient.defined()) return;
  at::Tensor& sum = unit.accumulated[parameter];
  sum = sum.defined() ? sum.add_(gradient) : gradient.to(unit.sharded.reduce_dtype);
  named.tensor.mutable_grad().reset();
}

// The last one is launched when backward has ended: when it is summed, no rank reads its parameters any more.
void ShardReducer::LaunchReady() {
  while (next_ + 1 < units_.size() && units_[UnitAt(next_)].missing == 0) Launch(UnitAt(next_++), /*brings=*/true);
}

void ShardReducer::EndBackward() {
  memory_->EndBackward();
  while (next_ < units_.size()) Launch(UnitAt(next_++), /*brings=*/true);
  for (Unit& unit : units_) unit.missing = unit.sharded.parameters.size();
  next_ = 0;
  running_ = false;
  ++reduced_;
}

void ShardReducer::SkipRound(int round) {
  round_ = round;
  for (size_t place = 0; place < units_.size(); ++place) Launch(UnitAt(place), /*brings=*/false);
}

void ShardReducer::Launch(size_t index, bool brings) {
  Unit& unit = units_[index];
  WaitForTurn(index);
  const c10::NoGradGuard no_grad;
  ThrowIfError(mesh_->Spread(memory_->BeforeReduction(index, brings)));
  const at::Tensor buffer = memory_->buffers().Take();
  const int64_t bytes = unit.bounds.back() * unit.gradient.element_size();
  const at::Tensor leaf = buffer.narrow(0, 0, bytes).view(unit.gradient.scalar_type());
  if (brings) CopyIn(unit, leaf);
  const auto guard = stream_.Enter();
  ThrowIfError(mesh_->Spread(FinishGather(unit)));
  if (round_ == 0 && reduced_ > 0) {
    unit.earlier = unit.earlier.defined() ? unit.earlier.add_(unit.gradient) : unit.gradient.clone();
  }
  ThrowIfError(mesh_->Spread(scatter_.Start(round_, leaf, &unit.sum)));
  sending_.push_back({index, buffer, round_ + 1 == rounds()});
  if (memory_->reductions() == 0) ThrowIfError(WaitForOldest());
}

template <typename F>
void ShardReducer::ForParts(const Unit& unit, const Piece& piece, const F& f) const {
  const std::vector<int64_t>& slices = unit.sharded.layout.slices;
  const int64_t first = slices[piece.rank], part = (slices[piece.rank + 1] - first) / mesh_->replicas();
  const int64_t end = piece.flag() + 16;
  for (int64_t place = piece.offset; place < end;) {
    const int64_t within = (place - first) % part, count = std::min(end - place, part - within);
    const int rank = mesh_->RankOf(static_cast<int>((place - first) / part), piece.rank);
    f(place - piece.offset, unit.bounds[rank] + within, count);
    place += count;
  }
}

void ShardReducer::CopyIn(Unit& unit, const at::Tensor& buffer) const {
  unit.streams.Await();
  std::vector<at::Tensor> gradients;
  for (size_t k = 0; k < unit.accumulated.size(); ++k) {
    if (unit.accumulated[k].defined()) Accumulate(unit, k);
    const at::Tensor sum = std::exchange(unit.accumulated[k], at::Tensor());
    if (sum.defined()) KeepForCurrentStream(sum);
    gradients.push_back(sum.defined() ? sum : FlatGradient(unit.sharded.parameters[k]));
  }
  std::vector<Copy> copies, tails;
  for (const Piece& piece : unit.sharded.layout.pieces) {
    const at::Tensor& gradient = gradients[piece.parameter];
    const int64_t numel = piece.end - piece.begin, gap = piece.flag() - piece.offset - numel;
    ForParts(unit, piece, [&](int64_t begin, int64_t place, int64_t count) {
      if (!gradient.defined()) {
        buffer.narrow(0, place, count).zero_();
        return;
      }
      const int64_t values = std::clamp<int64_t>(numel - begin, 0, count);
      if (values > 0) copies.push_back({place, &gradient, piece.begin + begin, values});
      if (values < count)
        tails.push_back({place + values, &unit.tail, 15 - gap + begin + values - numel, count - values});
    });
  }
  CopyAll(buffer, copies);
  CopyAll(buffer, tails);
  for (const NamedTensor& parameter : unit.sharded.parameters) parameter.tensor.mutable_grad().reset();
}

// Until there is a buffer for a unit, and the unit's round before has ended.
void ShardReducer::WaitForTurn(size_t unit) {
  const auto sends = [this](size_t which) {
    return std::any_of(sending_.begin(), sending_.end(), [&](const Sending& sending) { return sending.unit == which; });
  };
  while (!sending_.empty() && (sending_.size() >= memory_->reductions() || sends(unit))) ThrowIfError(WaitForOldest());
}

// Then no other rank reads the buffer any more.
absl::Status ShardReducer::WaitForOldest() {
  const auto guard = stream_.Enter();
  const Sending oldest = sending_.front();
  sending_.pop_front();
  Unit& unit = units_[oldest.unit];
  const absl::Status status = mesh_->Spread(scatter_.Wait(&unit.sum));
  memory_->buffers().Give(oldest.buffer);
  if (status.ok() && oldest.is_last) StartGather(unit);
  return status;
}

void ShardReducer::StartGather(Unit& unit) const {
  if (mesh_->replicas() == 1 || unit.gradient.numel() == 0) return;
  unit.gather = mesh_->replicate_group()->AllGatherIntoTensorAsync(unit.gradient, unit.sum.result());
}

absl::Status ShardReducer::FinishGather(Unit& unit) {
  std::optional<comm::Work> gather = std::exchange(unit.gather, std::nullopt);
  return gather ? gather->Wait() : absl::OkStatus();
}

absl::Status ShardReducer::Wait() {
  while (!sending_.empty()) LOCKSTEP_RETURN_IF_ERROR(WaitForOldest());
  {
    const c10::NoGradGuard no_grad;
    const auto guard = stream_.Enter();
    for (Unit& unit : units_) {
      LOCKSTEP_RETURN_IF_ERROR(mesh_->Spread(FinishGather(unit)));
      if (unit.earlier.defined()) unit.gradient.copy_(unit.earlier.add_(unit.gradient));
      unit.earlier.reset();
    }
  }
  stream_.Await();
  // If a rank died meanwhile, sums on a GPU are undefined.
  if (!device_.is_cpu()) LOCKSTEP_RETURN_IF_ERROR(mesh_->group()->Synchronize(device_));
  ReadFlags();
  return absl::OkStatus();
}

// One copy from a GPU brings all of them.
void ShardReducer::ReadFlags() {
  std::vector<at::Tensor> flags;
  std::vector<std::pair<Unit*, int64_t>> places;
  for (Unit& unit : units_) {
    unit.with_flag.clear();
    for (const Piece& piece : unit.sharded.layout.pieces) {
      if (piece.rank != mesh_->place()) continue;
      flags.push_back(unit.gradient.narrow(0, piece.flag() - unit.sharded.layout.slices[piece.rank], 1));
      places.emplace_back(&unit, piece.flag());
    }
  }
  if (flags.empty()) return;
  const at::Tensor all = at::cat(flags).ne(0).cpu();
  for (size_t i = 0; i < places.size(); ++i) {
    if (static_cast<const bool*>(all.const_data_ptr())[i]) places[i].first->with_flag.insert(places[i].second);
  }
}

at::Tensor ShardReducer::GradientOf(size_t index, const Piece& piece) const {
  const Unit& unit = units_[index];
  const int64_t first = unit.sharded.layout.slices[mesh_->place()];
  if (!unit.with_flag.contains(piece.flag())) return {};
  return unit.gradient.narrow(0, piece.offset - first, piece.end - piece.begin).to(unit.sharded.shard_dtype);
}

ShardReducer::GradientBytes ShardReducer::gradient_bytes() const {
  // Before the last round, TreeScatter has as many sums as there are ones in the number of rounds.
  const int most = std::max<int>(1, absl::bit_width(static_cast<unsigned>(rounds())) - 1);
  GradientBytes bytes;
  for (const Unit& unit : units_) {
    const at::Tensor& gradient = unit.gradient;
    const at::ScalarType dtype = unit.sharded.shard_dtype;
    bytes.sums += static_cast<int64_t>(gradient.nbytes() + (most - 1) * unit.sum.result().nbytes());
    if (gradient.scalar_type() != dtype)
      bytes.copies += gradient.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  }
  return bytes;
}

void ShardReducer::Clear() { reduced_ = 0; }

}  // namespace lockstep::fsdp::internal
