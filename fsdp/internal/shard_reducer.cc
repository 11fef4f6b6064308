#include "lockstep/fsdp/internal/shard_reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cstring>
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
  if (gradient.strides() != parameter.tensor.strides() || gradient.dtype() != parameter.tensor.dtype())
    gradient = at::empty_strided(parameter.tensor.sizes(), parameter.tensor.strides(), parameter.tensor.options())
                   .copy_(gradient);  // no operator on the parameter, whose values need not be there
  return gradient.as_strided({gradient.numel()}, {1});
}

}  // namespace

ShardReducer::ShardReducer(comm::ProcessGroup* group, ParameterMemory* memory, int leaves,
                           std::vector<ShardedUnit> units)
    : group_(group), memory_(memory), scatter_(group, leaves) {
  std::vector<std::pair<size_t, size_t>> places;  // of each parameter: its unit, and its place in it
  for (ShardedUnit& sharded : units) {
    const std::vector<int64_t>& slices = sharded.layout.slices;
    const at::Tensor& first = sharded.parameters[0].tensor;
    const int64_t own = slices[group->rank() + 1] - slices[group->rank()];
    const size_t size = sharded.parameters.size();
    for (size_t place = 0; place < size; ++place) {
      parameters_.push_back(sharded.parameters[place]);
      places.emplace_back(units_.size(), place);
    }
    comm::TreeScatter::Sum sum(at::zeros({own}, first.options().dtype(sharded.reduce_dtype).requires_grad(false)),
                               slices);
    units_.push_back({std::move(sharded), std::move(sum), at::Tensor(), size, std::vector<at::Tensor>(size)});
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

const NamedTensor* ShardReducer::Replaced() const {
  const int replaced = hooks_->Replaced();
  return replaced < 0 ? nullptr : &parameters_[replaced];
}

void ShardReducer::OnGradient(size_t unit, size_t parameter) {
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
  ThrowIfError(memory_->BeforeReduction(index, brings));
  if (round_ == 0 && reduced_ > 0) {
    unit.earlier = unit.earlier.defined() ? unit.earlier.add_(unit.sum.result()) : unit.sum.result().clone();
  }
  const at::Tensor buffer = memory_->buffers().Take(), result = unit.sum.result();
  const int64_t bytes = unit.sharded.layout.slices.back() * result.element_size();
  const at::Tensor leaf = buffer.narrow(0, 0, bytes).view(result.scalar_type());
  if (brings) CopyIn(unit, leaf);
  ThrowIfError(scatter_.Start(round_, leaf, &unit.sum));
  sending_.push_back({index, buffer});
  if (memory_->reductions() == 0) ThrowIfError(WaitForOldest());
}

void ShardReducer::CopyIn(Unit& unit, const at::Tensor& buffer) {
  const at::Tensor one = at::ones({1}, buffer.options());
  const size_t bytes = buffer.element_size();
  char* const to = static_cast<char*>(buffer.mutable_data_ptr());
  std::vector<at::Tensor> gradients;
  for (size_t k = 0; k < unit.accumulated.size(); ++k) {
    if (unit.accumulated[k].defined()) Accumulate(unit, k);
    const at::Tensor sum = std::exchange(unit.accumulated[k], at::Tensor());
    gradients.push_back(sum.defined() ? sum : FlatGradient(unit.sharded.parameters[k]));
  }
  for (const Piece& piece : unit.sharded.layout.pieces) {
    const at::Tensor& gradient = gradients[piece.parameter];
    const size_t count = piece.end - piece.begin;
    memset(to + (piece.offset + count) * bytes, 0, (piece.flag() + 16 - piece.offset - count) * bytes);
    if (gradient.defined()) {
      if (gradient.scalar_type() == buffer.scalar_type()) {
        memcpy(to + piece.offset * bytes, static_cast<const char*>(gradient.const_data_ptr()) + piece.begin * bytes,
               count * bytes);
      } else {
        const auto numel = static_cast<int64_t>(count);
        buffer.narrow(0, piece.offset, numel).copy_(gradient.narrow(0, piece.begin, numel));
      }
      memcpy(to + piece.flag() * bytes, one.const_data_ptr(), bytes);
    } else {
      memset(to + piece.offset * bytes, 0, count * bytes);
    }
  }
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
  const Sending oldest = sending_.front();
  sending_.pop_front();
  const absl::Status status = scatter_.Wait(&units_[oldest.unit].sum);
  memory_->buffers().Give(oldest.buffer);
  return status;
}

absl::Status ShardReducer::Wait() {
  while (!sending_.empty()) LOCKSTEP_RETURN_IF_ERROR(WaitForOldest());
  const c10::NoGradGuard no_grad;
  for (Unit& unit : units_) {
    if (unit.earlier.defined()) unit.sum.result().copy_(unit.earlier.add_(unit.sum.result()));
    unit.earlier.reset();
  }
  return absl::OkStatus();
}

at::Tensor ShardReducer::GradientOf(size_t index, const Piece& piece) const {
  const Unit& unit = units_[index];
  const int64_t first = unit.sharded.layout.slices[group_->rank()];
  if (unit.sum.result().narrow(0, piece.flag() - first, 1).item<double>() == 0) return {};
  return unit.sum.result().narrow(0, piece.offset - first, piece.end - piece.begin).to(unit.sharded.shard_dtype);
}

ShardReducer::GradientBytes ShardReducer::gradient_bytes() const {
  // Before the last round, TreeScatter has as many sums as there are ones in the number of rounds.
  const int most = std::max<int>(1, absl::bit_width(static_cast<unsigned>(rounds())) - 1);
  GradientBytes bytes;
  for (const Unit& unit : units_) {
    const at::Tensor& sum = unit.sum.result();
    const at::ScalarType dtype = unit.sharded.shard_dtype;
    bytes.sums += most * static_cast<int64_t>(sum.nbytes());
    if (sum.scalar_type() != dtype) bytes.copies += sum.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  }
  return bytes;
}

void ShardReducer::Clear() { reduced_ = 0; }

}  // namespace lockstep::fsdp::internal
