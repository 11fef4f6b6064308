#include "lockstep/comm/testing/thread_backend.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/comm/backend.h"

namespace lockstep::comm::testing {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

ThreadCall CallOf(OpType type, const Tensors& inputs, const Tensors& outputs = {}) {
  ThreadCall call;
  call.type = type;
  for (const at::Tensor& tensor : inputs) call.inputs.push_back(tensor.detach());
  for (const at::Tensor& tensor : outputs) call.outputs.push_back(tensor.detach());
  return call;
}

ThreadCall ReductionOf(OpType type, const c10d::ReduceOp& op, const Tensors& inputs, const Tensors& outputs = {}) {
  ThreadCall call = CallOf(type, inputs, outputs);
  call.op = op.op_;
  call.subject = call.inputs.at(0);
  CheckReduction(call);
  return call;
}

// Cut along the first dimension.
Tensors Rows(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size) {
  if (splits.empty()) return tensor.detach().tensor_split(size);
  return tensor.detach().split_with_sizes(splits);
}

class ThreadBackend : public c10d::Backend {
 public:
  ThreadBackend(ThreadPort port, int rank) : Backend(rank, port.size()), port_(std::move(port)) {}
  ~ThreadBackend() override { port_.Leave("its group was destroyed"); }

  const std::string getBackendName() const override { return "threads"; }
  void abort() override { port_.Abort(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return Rooted(CallOf(OpType::BROADCAST, tensors), options.rootRank, tensors.at(0));
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return port_.Join(ReductionOf(OpType::ALLREDUCE, options.reduceOp, tensors));
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return port_.Join(ReductionOf(OpType::ALLREDUCE_COALESCED, options.reduceOp, tensors));
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    ThreadCall call = ReductionOf(OpType::REDUCE, options.reduceOp, tensors);
    call.root = options.rootRank;
    return port_.Join(std::move(call));
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    return Alike(CallOf(OpType::ALLGATHER, inputs, outputs.at(0)), inputs.at(0));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    return Alike(CallOf(OpType::_ALLGATHER_BASE, {input}, PartsLike(output, input)), input);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return port_.Join(ReductionOf(OpType::REDUCE_SCATTER, options.reduceOp, inputs.at(0), outputs));
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return port_.Join(ReductionOf(OpType::_REDUCE_SCATTER_BASE, options.reduceOp, PartsLike(input, output), {output}));
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    return port_.Join(CallOf(OpType::ALLTOALL, inputs, outputs));
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    return port_.Join(
        CallOf(OpType::ALLTOALL_BASE, Rows(input, input_splits, getSize()), Rows(output, output_splits, getSize())));
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return Rooted(CallOf(OpType::GATHER, inputs, outputs.empty() ? Tensors() : outputs[0]), options.rootRank,
                  inputs.at(0));
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    return Rooted(CallOf(OpType::SCATTER, inputs.empty() ? Tensors() : inputs[0], outputs), options.rootRank,
                  outputs.at(0));
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return port_.Join(CallOf(OpType::BARRIER, {})); }
  WorkPtr send(Tensors& tensors, int to, int tag) override { return port_.Send(tensors.at(0).detach(), to, tag); }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return port_.Receive(tensors.at(0).detach(), from, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return port_.Receive(tensors.at(0).detach(), -1, tag); }

 private:
  WorkPtr Rooted(ThreadCall call, int64_t root, const at::Tensor& subject) {
    call.root = root;
    return Alike(std::move(call), subject);
  }
  WorkPtr Alike(ThreadCall call, const at::Tensor& subject) {
    call.subject = subject;
    return port_.Join(std::move(call));
  }
  Tensors PartsLike(const at::Tensor& tensor, const at::Tensor& part) {
    Tensors parts;
    for (int i = 0; i < getSize(); ++i) {
      parts.push_back(tensor.detach().view({-1}).slice(0, i * part.numel(), (i + 1) * part.numel()).view(part.sizes()));
    }
    return parts;
  }

  const ThreadPort port_;
};

// The hubs that rank 0 has made and that not every rank has taken yet.
struct Pending {
  std::shared_ptr<ThreadHub> hub;
  int takers = 0;
};

absl::Mutex& PendingMutex() {
  static auto* const mutex = new absl::Mutex();
  return *mutex;
}

std::shared_ptr<ThreadHub> TakeHub(const BackendContext& context) {
  static auto* const pending = new std::map<std::string, Pending>();
  static int64_t made = 0;
  if (context.rank == 0) {
    MutexLock lock(PendingMutex());
    const std::string id = absl::StrCat(made++);
    (*pending)[id].hub = std::make_shared<ThreadHub>(context.size, context.timeout);
    context.store->set("hub", id);
  }
  const std::string id = context.store->get_to_str("hub");
  MutexLock lock(PendingMutex());
  Pending& entry = pending->at(id);
  const std::shared_ptr<ThreadHub> hub = entry.hub;
  if (++entry.takers == context.size) pending->erase(id);
  return hub;
}

absl::Status InOneProcess(const BackendContext& context) {
  for (const RankIdentity& rank : context.ranks) {
    if (rank.pid != context.ranks[0].pid) {
      return absl::FailedPreconditionError(
          absl::StrCat(NameOf(context.ranks[0]), " and ", NameOf(rank), " are not one process"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Create(const BackendContext& context) {
  return MakeThreadBackend(*TakeHub(context), context.rank);
}

[[maybe_unused]] const bool registered =
    RegisterBackend({"threads", {c10::DeviceType::CPU}, /*preference=*/-100, InOneProcess, Create});

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeThreadBackend(const ThreadHub& hub, int rank) {
  return c10::make_intrusive<ThreadBackend>(ThreadPort(hub.impl(), rank), rank);
}

}  // namespace lockstep::comm::testing
