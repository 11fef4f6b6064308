#include "lockstep/dp/internal/chunk.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/dp/internal/peers.h"
#include "lockstep/dp/internal/sum_of_copies.h"

namespace lockstep::dp::internal {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, like LibTorch's allocations

std::vector<int64_t> ContiguousStrides(c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

std::vector<int64_t> PieceStrides(const at::Tensor& source) {
  return source.is_non_overlapping_and_dense() ? source.strides().vec() : ContiguousStrides(source.sizes());
}

void CopyOnCpu(const at::Tensor& source, const at::Tensor& piece) {
  if (source.strides() == piece.strides()) {
    std::memcpy(piece.data_ptr(), source.data_ptr(), source.nbytes());
  } else {
    piece.copy_(source);
  }
}

}  // namespace

Chunk::Chunk(ChunkKind kind, std::vector<at::Tensor> sources, const std::vector<std::vector<at::Tensor>>& copies,
             const std::vector<c10::Device>& devices, bool share_memory)
    : kind_(kind), sources_(std::move(sources)) {
  const int64_t alignment = kAlignment / static_cast<int64_t>(sources_[0].element_size());
  offsets_.push_back(0);
  for (const at::Tensor& source : sources_) {
    strides_.push_back(PieceStrides(source));
    offsets_.push_back((offsets_.back() + source.numel() + alignment - 1) / alignment * alignment);
  }
  for (size_t r = 0; r < copies.size(); ++r) {
    const bool share = share_memory && kind == ChunkKind::kParameters && devices[r] == sources_[0].device();
    copies_.push_back(MakeCopy(copies[r], devices[r], share));
  }
  versions_.resize(copies.size());
}

Chunk::Copy Chunk::MakeCopy(std::vector<at::Tensor> tensors, c10::Device device, bool share) const {
  Copy copy;
  if (!share) {
    copy.flat = at::empty({offsets_.back()}, sources_[0].options().device(device).requires_grad(false));
    copy.memory = Pieces(copy.flat);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].set_requires_grad(false);
    tensors[i].set_data(share ? sources_[i].detach() : copy.memory[i].detach());
    // Autograd notices a parameter that is changed in place between a forward and its backward, as it does without
    // replicas.
    if (share) {
      torch::autograd::impl::set_version_counter(tensors[i], torch::autograd::impl::version_counter(sources_[i]));
    }
  }
  copy.tensors = std::move(tensors);
  return copy;
}

std::vector<at::Tensor> Chunk::Pieces(const at::Tensor& flat) const {
  std::vector<at::Tensor> pieces;
  for (size_t i = 0; i < sources_.size(); ++i) {
    // variable_data() gives them separate versions.
    pieces.push_back(flat.as_strided(sources_[i].sizes(), strides_[i], offsets_[i]).variable_data());
  }
  return pieces;
}

void Chunk::Attach() {
  std::vector<std::vector<at::Tensor>> tensors;
  for (const Copy& copy : copies_) {
    for (const at::Tensor& tensor : copy.tensors) torch::autograd::impl::set_gradient_edge(tensor, {});
    tensors.push_back(copy.tensors);
  }
  AttachCopies(sources_, tensors);
}

void Chunk::Update(size_t count) {
  std::vector<Copy*> outdated;
  for (size_t r = 0; r < count; ++r) {
    Copy& copy = copies_[r];
    if (copy.idle_uses.empty()) copy.idle_uses = Uses(copy);
    if (copy.memory.empty()) continue;
    if (kind_ == ChunkKind::kBuffers || IsOutdated(copy)) outdated.push_back(&copy);
  }
  if (!outdated.empty()) Fill(outdated);
  if (kind_ == ChunkKind::kBuffers) RecordVersions(count);
}

bool Chunk::IsKept() const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [](const Copy& copy) { return !copy.idle_uses.empty() && IsKept(copy); });
}

// The uses of each tensor, and last of the block.
std::vector<size_t> Chunk::Uses(const Copy& copy) {
  std::vector<size_t> uses;
  for (const at::Tensor& tensor : copy.tensors) uses.push_back(tensor.use_count());
  if (copy.flat.defined()) uses.push_back(copy.flat.storage().use_count());
  return uses;
}

// A graph that keeps the replica's parameters keeps their memory. Then the memory is written only if the values have
// changed.
bool Chunk::IsOutdated(const Copy& copy) const {
  if (!IsKept(copy)) return true;
  bool equal = true;
  for (size_t i = 0; equal && i < sources_.size(); ++i) {
    equal = copy.memory[i].equal(sources_[i].detach().to(copy.memory[i].device()));
  }
  if (equal) return false;
  for (const at::Tensor& tensor : copy.tensors) tensor.unsafeGetTensorImpl()->bump_version();
  return true;
}

void Chunk::Fill(const std::vector<Copy*>& copies) const {
  const c10::NoGradGuard no_grad;
  if (copies[0]->flat.is_cpu()) {
    for (const Copy* copy : copies) {
      for (size_t i = 0; i < sources_.size(); ++i) CopyOnCpu(sources_[i], copy->memory[i]);
    }
    return;
  }
  const at::Tensor staging = at::empty({offsets_.back()}, sources_[0].options().requires_grad(false));
  at::_foreach_copy_(Pieces(staging), sources_);
  std::vector<at::Tensor> targets;
  for (const Copy* copy : copies) targets.push_back(copy->flat);
  if (CopyToPeers(staging, targets)) return;
  for (const at::Tensor& target : targets) target.copy_(staging, /*non_blocking=*/true);
}

// Replicas' buffers are written at each forward, and graphs that keep them must accept that, as for the running
// statistics of the module itself. If the program changed the module's or the replica's buffers visibly to autograd,
// such graphs must fail.
void Chunk::RecordVersions(size_t count) {
  for (size_t r = 0; r < count; ++r) {
    std::vector<Versions> now;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const at::Tensor& copy = copies_[r].tensors[i];
      const uint32_t source = sources_[i].is_inference() ? 0 : sources_[i]._version();
      if (!versions_[r].empty() && (versions_[r][i].source != source || versions_[r][i].copy != copy._version())) {
        copy.unsafeGetTensorImpl()->bump_version();
      }
      now.push_back({source, static_cast<uint32_t>(copy._version())});
    }
    versions_[r] = std::move(now);
  }
}

}  // namespace lockstep::dp::internal
