#include "lockstep/fsdp/internal/shard_reducer.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <utility>

#include "absl/numeric/bits.h"
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

}  // namespace

ShardReducer::ShardReducer(const Mesh* mesh, ParameterMemory* memory, int leaves, std::vector<ShardedUnit> units,
                           std::function<void()> end_backward)
    : mesh_(mesh),
      memory_(memory),
      scatter_(mesh->group(), leaves, units[0].parameters[0].tensor.device().type()),
      stream_(units[0].parameters[0].tensor.device()),
      end_backward_(std::move(end_backward)) {
  std::vector<at::Tensor> tensors;
  std::vector<std::pair<size_t, size_t>> places;  // of each tensor: its unit, and its place in it
  for (ShardedUnit& unit : units) {
    const size_t count = unit.parameters.size();
    for (size_t place = 0; place < count; ++place) {
      tensors.push_back(unit.parameters[place].tensor);
      places.emplace_back(units_.size(), place);
    }
    units_.push_back({UnitGradients(mesh, std::move(unit)), count});
  }
  size_t chunks = 0;
  for (const Unit& unit : units_) chunks += unit.gradients.chunks();
  memory->buffers().Reserve(std::min(memory->reductions(), chunks));
  memory->BeforeUse([this] {
    if (running()) LaunchReady();
  });
  hooks_ = std::make_unique<ddp::internal::AccumulatorHooks>(std::move(tensors), [this, places](int index) {
    return std::make_unique<GradientHook>([this, place = places[index]] { OnGradient(place.first, place.second); });
  });
}

const NamedTensor* ShardReducer::Replaced() const {
  const int replaced = hooks_->Replaced();
  if (replaced < 0) return nullptr;
  auto place = static_cast<size_t>(replaced);
  size_t unit = 0;
  for (; place >= parameters(unit).size(); ++unit) place -= parameters(unit).size();
  return &parameters(unit)[place];
}

void ShardReducer::OnGradient(size_t unit, size_t parameter) {
  units_[unit].gradients.AddStream();
  if (!sync_) return units_[unit].gradients.Accumulate(parameter);
  if (!running()) {
    next_ = 0;
    ddp::internal::CallAtEndOfBackward([this] { EndBackward(); });
  }
  // Autograd has the last gradient until this hook returns.
  const bool later = memory_->reductions() == 0;
  if (later) LaunchReady();
  if (--units_[unit].missing == 0) memory_->EndUnit(unit);
  if (!later) LaunchReady();
}

// The last one is launched when backward has ended: when it is summed, no rank reads its parameters any more.
void ShardReducer::LaunchReady() {
  while (*next_ + 1 < units_.size() && units_[UnitAt(*next_)].missing == 0) Launch(UnitAt((*next_)++), /*brings=*/true);
}

void ShardReducer::EndBackward() {
  memory_->EndBackward();
  while (*next_ < units_.size()) Launch(UnitAt((*next_)++), /*brings=*/true);
  for (size_t i = 0; i < units_.size(); ++i) units_[i].missing = parameters(i).size();
  next_.reset();
  ++reduced_;
  end_backward_();
}

void ShardReducer::SkipRound(int round) {
  round_ = round;
  for (size_t place = 0; place < units_.size(); ++place) Launch(UnitAt(place), /*brings=*/false);
}

void ShardReducer::Launch(size_t unit, bool brings) {
  for (int chunk = 0; chunk < units_[unit].gradients.chunks(); ++chunk) LaunchChunk(unit, chunk, brings);
}

void ShardReducer::LaunchChunk(size_t unit, int chunk, bool brings) {
  UnitGradients& gradients = units_[unit].gradients;
  WaitForTurn(unit, chunk);
  const c10::NoGradGuard no_grad;
  if (chunk == 0) ThrowIfError(mesh_->Spread(memory_->BeforeReduction(unit, brings)));
  const at::Tensor buffer = memory_->buffers().Take();
  const at::Tensor leaf = gradients.LeafIn(buffer, chunk);
  if (brings) gradients.MoveTo(leaf, chunk);
  const auto guard = stream_.Enter();
  if (chunk == 0) {
    ThrowIfError(mesh_->Spread(gradients.FinishGather()));
    if (round_ == 0 && reduced_ > 0) gradients.KeepEarlier();
  }
  ThrowIfError(mesh_->Spread(scatter_.Start(round_, leaf, gradients.sum(chunk))));
  sending_.push_back({unit, chunk, buffer, round_ + 1 == rounds()});
  if (memory_->reductions() == 0) ThrowIfError(WaitForOldest());
}

// Until there is a buffer for a chunk, and the unit's round before has ended.
void ShardReducer::WaitForTurn(size_t unit, int chunk) {
  const auto sends = [this](size_t which) {
    return std::any_of(sending_.begin(), sending_.end(), [&](const Sending& sending) { return sending.unit == which; });
  };
  while (!sending_.empty() && (sending_.size() >= memory_->reductions() || (chunk == 0 && sends(unit))))
    ThrowIfError(WaitForOldest());
}

// Then no other rank reads the buffer any more.
absl::Status ShardReducer::WaitForOldest() {
  const auto guard = stream_.Enter();
  const Sending oldest = sending_.front();
  sending_.pop_front();
  UnitGradients& gradients = units_[oldest.unit].gradients;
  const absl::Status status = mesh_->Spread(scatter_.Wait(gradients.sum(oldest.chunk)));
  memory_->buffers().Give(oldest.buffer);
  if (status.ok() && oldest.is_last && oldest.chunk + 1 == gradients.chunks()) gradients.StartGather();
  return status;
}

absl::Status ShardReducer::Wait() {
  while (!sending_.empty()) LOCKSTEP_RETURN_IF_ERROR(WaitForOldest());
  {
    const c10::NoGradGuard no_grad;
    const auto guard = stream_.Enter();
    for (Unit& unit : units_) {
      LOCKSTEP_RETURN_IF_ERROR(mesh_->Spread(unit.gradients.FinishGather()));
      unit.gradients.AddEarlier();
    }
  }
  stream_.Await();
  // If a rank died meanwhile, sums on a GPU are undefined.
  const c10::Device device = units_[0].gradients.device();
  if (!device.is_cpu()) LOCKSTEP_RETURN_IF_ERROR(mesh_->group()->Synchronize(device));
  ReadFlags();
  return absl::OkStatus();
}

// One copy from a GPU brings all of them.
void ShardReducer::ReadFlags() {
  std::vector<at::Tensor> flags;
  for (const Unit& unit : units_) {
    for (const at::Tensor& flag : unit.gradients.Flags()) flags.push_back(flag);
  }
  if (flags.empty()) return;
  const at::Tensor all = at::cat(flags).ne(0).cpu();
  const bool* next = static_cast<const bool*>(all.const_data_ptr());
  for (Unit& unit : units_) next = unit.gradients.SetFlags(next);
}

ShardReducer::GradientBytes ShardReducer::gradient_bytes() const {
  // Before the last round, TreeScatter has as many sums as there are ones in the number of rounds.
  const int most = std::max<int>(1, absl::bit_width(static_cast<unsigned>(rounds())) - 1);
  GradientBytes bytes;
  for (const Unit& unit : units_) {
    const UnitGradients& gradients = unit.gradients;
    const ShardedUnit& sharded = gradients.unit();
    bytes.sums += gradients.slice_bytes() + (most - 1) * gradients.part_bytes();
    if (sharded.reduce_dtype == sharded.shard_dtype) continue;
    const auto size = [](at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); };
    bytes.copies += gradients.slice_bytes() / size(sharded.reduce_dtype) * size(sharded.shard_dtype);
  }
  return bytes;
}

}  // namespace lockstep::fsdp::internal
