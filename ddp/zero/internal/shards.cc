#include "lockstep/ddp/zero/internal/shards.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/ddp/internal/parameter_check.h"

namespace lockstep::ddp::zero::internal {
namespace {

using comm::internal::Flatten;
using comm::internal::Unflatten;
using ddp::internal::NamedTensor;

std::string NameOf(size_t group, size_t parameter) { return absl::StrCat("group ", group, " parameter ", parameter); }

std::vector<NamedTensor> Named(const ParamGroups& groups) {
  std::vector<NamedTensor> named;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      // An undefined parameter cannot be compared. Its name informs the other ranks.
      named.push_back(parameter.defined() ? NamedTensor{NameOf(g, i), parameter}
                                          : NamedTensor{absl::StrCat(NameOf(g, i), " undefined"), at::empty({0})});
    }
  }
  return named;
}

absl::Status CheckEach(const ParamGroups& groups, bool as_views) {
  std::set<const at::TensorImpl*> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      const auto wrong = [&](const char* what) {
        return absl::InvalidArgumentError(absl::StrCat(NameOf(g, i), " ", what));
      };
      if (!parameter.defined()) return wrong("is undefined");
      if (!parameter.is_leaf()) return wrong("is not a leaf: it was computed from other tensors");
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) return wrong("occurs twice");
      if (as_views && !parameter.is_non_overlapping_and_dense())
        return wrong("is not dense, so it cannot be part of a buffer");
    }
  }
  return absl::OkStatus();
}

std::vector<std::vector<int64_t>> SizesOf(const ParamGroups& groups) {
  std::vector<std::vector<int64_t>> sizes;
  for (const torch::optim::OptimizerParamGroup& group : groups) {
    sizes.emplace_back();
    for (const at::Tensor& parameter : group.params()) sizes.back().push_back(parameter.numel());
  }
  return sizes;
}

at::Tensor EmptyFlat(const std::vector<at::Tensor>& tensors) {
  int64_t numel = 0;
  for (const at::Tensor& tensor : tensors) numel += tensor.numel();
  return at::empty({numel}, tensors[0].options().requires_grad(false));
}

}  // namespace

std::vector<std::vector<int>> AssignOwners(const std::vector<std::vector<int64_t>>& sizes, int world_size) {
  std::vector<int64_t> loads(world_size, 0);
  std::vector<std::vector<int>> owners;
  for (const std::vector<int64_t>& group : sizes) {
    std::vector<int> largest_first(group.size());
    std::iota(largest_first.begin(), largest_first.end(), 0);
    std::stable_sort(largest_first.begin(), largest_first.end(), [&](int a, int b) { return group[a] > group[b]; });
    owners.emplace_back(group.size());
    for (const int i : largest_first) {
      const auto least = std::min_element(loads.begin(), loads.end());
      owners.back()[i] = static_cast<int>(least - loads.begin());
      *least += group[i];
    }
  }
  return owners;
}

absl::StatusOr<Shards> Shards::Create(const ParamGroups& groups, comm::ProcessGroup* group, bool as_views) {
  const std::string who = absl::StrCat("rank ", group->rank(), ": ZeroRedundancyOptimizer");
  // The ranks compare first, so that a rank whose own check fails does not leave the others waiting.
  LOCKSTEP_RETURN_IF_ERROR(Annotate(ddp::internal::CheckSameParameters(*group, Named(groups)), who));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckEach(groups, as_views), who));
  Shards shards(group, AssignOwners(SizesOf(groups), group->size()), as_views);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].params().size(); ++i) shards.Add(groups[g].params()[i], shards.owners_[g][i]);
  }
  std::stable_sort(shards.parts_.begin(), shards.parts_.end(),
                   [](const Part& a, const Part& b) { return a.owner < b.owner; });
  if (as_views) LOCKSTEP_RETURN_IF_ERROR(TorchStatus(who, [&] { shards.MakeViews(); }));
  return shards;
}

void Shards::Add(const at::Tensor& parameter, int owner) {
  if (parts_.empty()) device_ = parameter.device();
  for (Part& part : parts_) {
    const at::Tensor& other = part.parameters[0];
    if (part.owner == owner && other.scalar_type() == parameter.scalar_type() && other.device() == parameter.device()) {
      part.parameters.push_back(parameter);
      return;
    }
  }
  parts_.push_back({owner, {parameter}, {}});
}

void Shards::MakeViews() {
  const c10::NoGradGuard no_grad;
  for (Part& part : parts_) {
    part.buffer = EmptyFlat(part.parameters);
    int64_t at = 0;
    for (at::Tensor& parameter : part.parameters) {
      const at::Tensor place = part.buffer.as_strided(parameter.sizes(), parameter.strides(), at);
      place.copy_(parameter);
      parameter.set_data(place);
      at += parameter.numel();
    }
  }
}

ParamGroups Shards::ShareOf(const ParamGroups& groups, int rank) const {
  ParamGroups share;
  bool same = groups.size() == owners_.size();
  for (size_t g = 0; same && g < groups.size(); ++g) {
    same = groups[g].params().size() == owners_[g].size();
    std::vector<at::Tensor> own;
    for (size_t i = 0; same && i < owners_[g].size(); ++i) {
      if (owners_[g][i] == rank) own.push_back(groups[g].params()[i]);
    }
    share.emplace_back(std::move(own));
    if (groups[g].has_options()) share.back().set_options(groups[g].options().clone());
  }
  if (!same) {
    throw StatusError(
        absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(),
                                                   ": ZeroRedundancyOptimizer: its parameters are not the ones from "
                                                   "its creation; add parameters with AddParamGroup()")));
  }
  return share;
}

void Shards::DropOthers(ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>& states) const {
  for (const Part& part : parts_) {
    if (part.owner == group_->rank()) continue;
    for (const at::Tensor& parameter : part.parameters) states.erase(parameter.unsafeGetTensorImpl());
  }
}

absl::Status Shards::Broadcast() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  std::vector<comm::Work> works;
  for (const Part& part : parts_) {
    const bool own = part.owner == group_->rank();
    flat.push_back(part.buffer.defined() ? part.buffer : own ? Flatten(part.parameters) : EmptyFlat(part.parameters));
    works.push_back(group_->BroadcastAsync(flat.back(), part.owner));
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(works[i].Wait());
    if (!parts_[i].buffer.defined() && parts_[i].owner != group_->rank()) Unflatten(flat[i], parts_[i].parameters);
    flat[i].reset();
  }
  return absl::OkStatus();
}

absl::Status Shards::SendBytes(const std::string& bytes, int to) const {
  const auto size = static_cast<int64_t>(bytes.size());
  const at::Tensor data = at::empty({size}, at::kByte);
  std::memcpy(data.mutable_data_ptr(), bytes.data(), bytes.size());
  LOCKSTEP_RETURN_IF_ERROR(group_->Send(at::full({1}, size, at::kLong).to(device_), to));
  return group_->Send(data.to(device_), to);
}

absl::StatusOr<std::string> Shards::ReceiveBytes(int from) const {
  const at::Tensor size = at::zeros({1}, at::TensorOptions(at::kLong).device(device_));
  LOCKSTEP_RETURN_IF_ERROR(group_->Recv(size, from).status());
  const at::Tensor data = at::empty({size.item<int64_t>()}, at::TensorOptions(at::kByte).device(device_));
  LOCKSTEP_RETURN_IF_ERROR(group_->Recv(data, from).status());
  const at::Tensor here = data.cpu();
  return std::string(static_cast<const char*>(here.const_data_ptr()), here.numel());
}

std::string ToBytes(const std::function<void(torch::serialize::OutputArchive& archive)>& save) {
  torch::serialize::OutputArchive archive;
  save(archive);
  std::string bytes;
  archive.save_to([&bytes](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return bytes;
}

void FromBytes(const std::string& bytes, const std::function<void(torch::serialize::InputArchive& archive)>& load) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), at::Device(at::kCPU));
  load(archive);
}

}  // namespace lockstep::ddp::zero::internal
