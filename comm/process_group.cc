#include "lockstep/comm/process_group.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/dispatch.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/internal/group_factory.h"
#include "lockstep/comm/internal/tree_sum_backend.h"

namespace lockstep::comm {

using internal::Call;

namespace {

absl::Status CheckBackends(const BackendMap& backends) {
  if (backends.empty()) return absl::InvalidArgumentError("a process group needs a backend");
  const auto& first = backends.begin()->second;
  for (const auto& entry : backends) {
    const std::string device = c10::DeviceTypeName(entry.first, /*lower_case=*/true);
    if (!entry.second) return absl::InvalidArgumentError(absl::StrCat("the backend for ", device, " tensors is null"));
    if (entry.second->getRank() != first->getRank() || entry.second->getSize() != first->getSize()) {
      return absl::InvalidArgumentError(absl::StrCat("the backend for ", device, " tensors is rank ",
                                                     entry.second->getRank(), " of ", entry.second->getSize(),
                                                     ", expected rank ", first->getRank(), " of ", first->getSize()));
    }
  }
  return absl::OkStatus();
}

std::vector<c10::intrusive_ptr<c10d::Backend>> Values(const BackendMap& backends) {
  std::vector<c10::intrusive_ptr<c10d::Backend>> values;
  for (const auto& entry : backends) values.push_back(entry.second);
  return values;
}

internal::GroupParts PartsOf(c10::intrusive_ptr<c10d::Store> store, BackendMap backends, absl::Duration timeout) {
  internal::GroupState::Options state;
  state.rank = backends.begin()->second->getRank();
  state.size = backends.begin()->second->getSize();
  state.timeout = timeout;
  internal::GroupParts parts;
  parts.state = std::make_shared<internal::GroupState>(std::move(state));
  parts.store = std::move(store);
  parts.backends = std::move(backends);
  return parts;
}

}  // namespace

ProcessGroup::ProcessGroup(internal::GroupParts parts)
    : rank_(parts.state->rank()),
      size_(parts.state->size()),
      exceptions_(std::uncaught_exceptions()),
      abortable_(parts.abortable),
      master_(std::move(parts.master)),
      store_(std::move(parts.store)),
      backends_(std::move(parts.backends)),
      state_(std::move(parts.state)),
      factory_(std::move(parts.factory)),
      world_ranks_(std::move(parts.world_ranks)) {
  state_->SetBackends(Values(backends_));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::FromC10d(BackendMap backends,
                                                                     c10::intrusive_ptr<c10d::Store> store,
                                                                     absl::Duration timeout) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBackends(backends));
  return internal::GroupAccess::FromParts(PartsOf(std::move(store), std::move(backends), timeout));
}

std::unique_ptr<ProcessGroup> internal::GroupAccess::FromParts(GroupParts parts) {
  return std::unique_ptr<ProcessGroup>(new ProcessGroup(std::move(parts)));
}

std::unique_ptr<ProcessGroup> internal::GroupAccess::FromBackends(c10::intrusive_ptr<c10d::Store> store,
                                                                  BackendMap backends, absl::Duration timeout) {
  ThrowIfError(CheckBackends(backends));
  GroupParts parts = PartsOf(std::move(store), std::move(backends), timeout);
  parts.abortable = true;
  return FromParts(std::move(parts));
}

ProcessGroup::~ProcessGroup() {
  if (std::uncaught_exceptions() > exceptions_) {
    state_->Abort(absl::AbortedError("left by an exception"));
  }
  Release();
}

void ProcessGroup::Release() {
  state_->Close();
  if (!state_->failed() || abortable_) backends_.clear();
  if (backends_.empty()) return;
  // The destructor of a foreign backend may wait for its calls, up to their timeouts. So the backend is leaked, and so
  // is the server that it may use.
  for (auto& entry : backends_) entry.second.release();
  backends_.clear();
  master_.release();
}

const std::string& ProcessGroup::name() const { return state_->name(); }
absl::Duration ProcessGroup::timeout() const { return state_->timeout(); }
absl::Status ProcessGroup::failure() const { return state_->failure(); }
void ProcessGroup::Abort(const absl::Status& cause) { state_->Abort(cause); }

bool ProcessGroup::OnlyLockstepRanks() const { return factory_ ? !factory_->ranks.empty() : abortable_; }

c10d::Backend* ProcessGroup::BackendFor(const Call& call) const {
  if (!call.has_tensor) return backends_.empty() ? nullptr : backends_.begin()->second.get();
  const auto found = backends_.find(call.tensor.device().type());
  return found == backends_.end() ? nullptr : found->second.get();
}

absl::Status ProcessGroup::NoBackend(const Call& call) const {
  if (!call.has_tensor) return absl::FailedPreconditionError("the group was shut down");
  const auto has = [](std::string* out, const auto& entry) {
    absl::StrAppend(out, c10::DeviceTypeName(entry.first, true), ":", entry.second->getBackendName());
  };
  return absl::InvalidArgumentError(absl::StrCat("the group has no backend for ",
                                                 c10::DeviceTypeName(call.tensor.device().type(), true),
                                                 " tensors, only ", absl::StrJoin(backends_, ", ", has)));
}

Work ProcessGroup::BarrierAsync() {
  return Dispatch(
      Call::Of("barrier"), [] { return absl::OkStatus(); }, [] { return ""; },
      [](c10d::Backend& backend) { return backend.barrier(); });
}

absl::Status ProcessGroup::Barrier() { return BarrierAsync().Wait(); }

absl::Status ProcessGroup::Synchronize(c10::Device device) {
  if (device.is_cpu()) return failure();
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(absl::StrCat("rank ", rank_, ": waiting for ", device.str()), [device] {
    c10::Event moment(device.type());
    moment.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    moment.synchronize();
  }));
  const auto backend = backends_.find(device.type());
  if (backend != backends_.end()) state_->LearnErrorOf(*backend->second);
  return failure();
}

// A group without a watch may have Python ranks.
bool ProcessGroup::MatchesByIndex() const { return size_ == 1 || state_->watch() != nullptr; }

bool ProcessGroup::SharesMemory() const {
  const auto found = backends_.find(c10::DeviceType::CPU);
  return found != backends_.end() && found->second->supportsTensorAlloc(0);
}

absl::StatusOr<at::Tensor> ProcessGroup::AllocateShared(at::IntArrayRef shape, at::ScalarType dtype) {
  if (state_->failed()) return state_->failure();
  return TorchStatusOr(absl::StrCat("rank ", rank_, ": allocating a shared tensor"), [&] {
    const auto options = at::TensorOptions().dtype(dtype);
    if (!SharesMemory() && !HostSumBackendOf(c10::DeviceType::CPU)) return at::empty(shape, options);
    return backends_.at(c10::DeviceType::CPU)->allocateTensor(c10::multiply_integers(shape), options).view(shape);
  });
}

absl::StatusOr<at::Tensor> ProcessGroup::AllocateCommon(int64_t bytes) {
  const internal::TreeSumBackend* const backend = TreeSumBackendOf(c10::DeviceType::CPU);
  const std::string what = absl::StrCat("rank ", rank_, ": allocating memory that the ranks have in common");
  if (!backend) return absl::FailedPreconditionError(absl::StrCat(what, ": their backend shares no memory"));
  absl::StatusOr<at::Tensor> memory;
  std::string place;
  if (rank_ == 0) {
    memory = AllocateShared({bytes}, at::kByte);
    place = memory.ok() ? absl::StrCat(backend->PlaceOf(*memory)) : std::string(memory.status().message());
  }
  LOCKSTEP_RETURN_IF_ERROR(BroadcastBytes(place, 0));
  int64_t at = 0;
  if (!absl::SimpleAtoi(place, &at)) return absl::ResourceExhaustedError(absl::StrCat(what, ": ", place));
  if (rank_ == 0) return memory;
  return TorchStatusOr(what, [&] { return backend->AtPlace(at, bytes); });
}

absl::Status ProcessGroup::Shutdown(absl::Time deadline) {
  Work last = BarrierAsync();
  LOCKSTEP_RETURN_IF_ERROR(last.WaitHost(deadline));
  state_->Close();
  absl::Status status;
  for (auto& entry : backends_) {
    const absl::Status shut = TorchStatus("", [&] { entry.second->shutdown(); });
    status.Update(shut.ok() ? shut : Annotate(shut, absl::StrCat("rank ", rank_, ": shutting a backend down")));
  }
  backends_.clear();
  state_->Fail(absl::FailedPreconditionError(absl::StrCat("rank ", rank_, ": the group was shut down")));
  return status;
}

}  // namespace lockstep::comm
