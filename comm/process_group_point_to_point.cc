// ProcessGroup's sends and receives.

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/internal/dispatch.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

using internal::Call;

namespace {

bool IsSend(const P2POp& operation) { return operation.kind == P2POp::Kind::kSend; }

Call CallOf(const P2POp& operation) {
  Call call = Call::Of(IsSend(operation) ? "send" : "recv", operation.tensor);
  call.kind = Call::Kind::kPointToPoint;
  call.from_any = !IsSend(operation) && operation.peer == ProcessGroup::kAnySource;
  call.peer = operation.peer;
  call.tag = operation.tag;
  return call;
}

at::Tensor ContiguousOf(const P2POp& operation, internal::Layouts& layouts) {
  return IsSend(operation) ? layouts.Read(operation.tensor) : layouts.Write(operation.tensor);
}

c10::intrusive_ptr<c10d::Work> Begin(c10d::Backend& backend, const P2POp& operation, const at::Tensor& contiguous) {
  std::vector<at::Tensor> tensors = {contiguous};
  if (IsSend(operation)) return backend.send(tensors, operation.peer, operation.tag);
  if (operation.peer == ProcessGroup::kAnySource) return backend.recvAnysource(tensors, operation.tag);
  return backend.recv(tensors, operation.peer, operation.tag);
}

}  // namespace

absl::Status ProcessGroup::CheckP2P(const P2POp& operation) const {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckDense(operation.tensor));
  if (operation.tag < 0) return absl::InvalidArgumentError(absl::StrCat("tag ", operation.tag, " is negative"));
  if (!IsSend(operation) && operation.peer == kAnySource) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckRank(operation.peer, IsSend(operation) ? "destination" : "source", size_));
  if (operation.peer != rank_) return absl::OkStatus();
  return absl::InvalidArgumentError("a rank cannot send to itself");
}

Work ProcessGroup::StartP2P(const P2POp& operation) {
  internal::Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      CallOf(operation), [&] { return CheckP2P(operation); }, [] { return ""; },
      [&](c10d::Backend& backend) { return Begin(backend, operation, ContiguousOf(operation, layouts)); });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::Isend(const at::Tensor& tensor, int destination, int tag) {
  return StartP2P({P2POp::Kind::kSend, tensor, destination, tag});
}

Work ProcessGroup::Irecv(const at::Tensor& tensor, int source, int tag) {
  return StartP2P({P2POp::Kind::kRecv, tensor, source, tag});
}

absl::Status ProcessGroup::Send(const at::Tensor& tensor, int destination, int tag) {
  return Isend(tensor, destination, tag).Wait();
}

absl::StatusOr<int> ProcessGroup::Recv(const at::Tensor& tensor, int source, int tag) {
  Work work = Irecv(tensor, source, tag);
  LOCKSTEP_RETURN_IF_ERROR(work.Wait());
  return source == kAnySource ? work.SourceRank() : source;
}

absl::StatusOr<std::vector<Work>> ProcessGroup::BatchIsendIrecv(const std::vector<P2POp>& operations) {
  if (state_->failed()) return state_->failure();
  for (size_t i = 0; i < operations.size(); ++i) {
    const Call call = CallOf(operations[i]);
    absl::Status valid = CheckP2P(operations[i]);
    if (valid.ok() && !BackendFor(call)) valid = NoBackend(call);
    if (!valid.ok()) {
      return Annotate(valid, absl::StrCat("rank ", rank_, ": batch_isend_irecv: operation ", i, ", ", call.operation,
                                          " of ", internal::Describe(call.tensor)));
    }
  }
  std::vector<Work> works;
  c10d::Backend* const backend = operations.empty() ? nullptr : BackendFor(CallOf(operations[0]));
  if (!backend || !backend->supportsCoalescing()) {
    for (const P2POp& operation : operations) works.push_back(StartP2P(operation));
    return works;
  }
  Call call = CallOf(operations[0]);
  call.sequence = state_->NextSequence(call.kind);
  internal::Layouts layouts(MatchesByIndex());
  Work work = DispatchUnchecked(*backend, std::move(call), [&](c10d::Backend& device) {
    std::vector<at::Tensor> contiguous;  // before, since an error in between would leave the calls open
    for (const P2POp& operation : operations) contiguous.push_back(ContiguousOf(operation, layouts));
    device.startCoalescing();
    for (size_t i = 0; i < operations.size(); ++i) Begin(device, operations[i], contiguous[i]);
    return device.endCoalescing();
  });
  works.push_back(std::move(work).With(layouts.TakeResults()));
  return works;
}

}  // namespace lockstep::comm
