// ProcessGroup's collectives of byte strings.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/comm/internal/dispatch.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {
namespace {

at::Tensor HostBytes(absl::string_view bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string ToString(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu();
  return std::string(static_cast<const char*>(host.data_ptr()), host.numel());
}

}  // namespace

absl::Status ProcessGroup::BroadcastBytes(std::string& bytes, int root) {
  if (backends_.empty()) return state_->failure();
  const at::Device device(backends_.begin()->first);
  const at::Tensor size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong).to(device);
  LOCKSTEP_RETURN_IF_ERROR(Broadcast(size, root));
  at::Tensor data = rank_ == root ? HostBytes(bytes).to(device)
                                  : at::empty({size.item<int64_t>()}, at::TensorOptions(at::kByte).device(device));
  if (data.numel() > 0) LOCKSTEP_RETURN_IF_ERROR(Broadcast(data, root));
  if (rank_ != root) bytes = ToString(data);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ProcessGroup::AllGatherBytes(absl::string_view bytes) {
  if (backends_.empty()) return state_->failure();
  const at::Device device(backends_.begin()->first);
  const at::Tensor size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong).to(device);
  at::Tensor sizes = at::empty({size_}, size.options());
  LOCKSTEP_RETURN_IF_ERROR(AllGatherIntoTensor(sizes, size));
  sizes = sizes.cpu();
  const int64_t longest = sizes.max().item<int64_t>();
  // Every rank sends as many bytes as the longest text, since all ranks must pass one shape.
  const at::Tensor own = at::full({longest}, 0, at::kByte);
  own.slice(0, 0, bytes.size()).copy_(HostBytes(bytes));
  const at::Tensor all = at::empty({size_, longest}, at::TensorOptions(at::kByte).device(device));
  if (longest > 0) LOCKSTEP_RETURN_IF_ERROR(AllGatherIntoTensor(all, own.to(device)));
  std::vector<std::string> gathered;
  for (int i = 0; i < size_; ++i) gathered.push_back(ToString(all[i].slice(0, 0, sizes[i].item<int64_t>())));
  return gathered;
}

}  // namespace lockstep::comm
