#include "lockstep/comm/shm/internal/backend.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/tree_sum_backend.h"
#include "lockstep/comm/shm/communicator.h"
#include "lockstep/comm/shm/internal/tensors.h"

namespace lockstep::comm::shm::internal {
namespace {

using Operations = absl::InlinedVector<std::shared_ptr<Operation>, 1>;
using Tensors = absl::InlinedVector<at::Tensor, 2>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// One operation, or several that were coalesced.
class ShmWork final : public c10d::Work {
 public:
  ShmWork(std::shared_ptr<Communicator> communicator, c10d::OpType type, Operations operations,
          std::vector<at::Tensor> results, absl::Duration timeout)
      : Work(communicator->rank(), type),
        communicator_(std::move(communicator)),
        operations_(std::move(operations)),
        results_(std::move(results)),
        timeout_(timeout) {}

  bool isCompleted() override {
    return std::all_of(operations_.begin(), operations_.end(),
                       [this](const auto& operation) { return communicator_->Test(*operation); });
  }
  bool isSuccess() const override {
    return std::all_of(operations_.begin(), operations_.end(),
                       [](const auto& operation) { return operation->done() && operation->status().ok(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& operation : operations_) {
      if (operation->done() && !operation->status().ok())
        return std::make_exception_ptr(StatusError(operation->status()));
    }
    return nullptr;
  }
  int sourceRank() const override { return operations_.front()->source(); }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override {}

  bool wait(std::chrono::milliseconds timeout) override {
    const absl::Time deadline = absl::Now() + (timeout.count() > 0 ? absl::FromChrono(timeout) : timeout_);
    for (const auto& operation : operations_) ThrowIfError(communicator_->Wait(*operation, deadline));
    return true;
  }

  void abort() override { communicator_->Abort(absl::AbortedError("the call was aborted")); }

 private:
  const std::shared_ptr<Communicator> communicator_;
  const Operations operations_;
  const std::vector<at::Tensor> results_;
  const absl::Duration timeout_;
};

class ShmBackend final : public c10d::Backend, public comm::internal::TreeSumBackend {
 public:
  ShmBackend(std::shared_ptr<Communicator> communicator, absl::Duration timeout)
      : Backend(communicator->rank(), communicator->size()),
        communicator_(std::move(communicator)),
        timeout_(timeout) {}

  const std::string getBackendName() const override { return "shm"; }
  void abort() override { communicator_->Abort(absl::AbortedError("the group was aborted")); }
  void shutdown() override { abort(); }
  void waitForPendingWorks() override { ThrowIfError(communicator_->Drain(absl::Now() + timeout_)); }

  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    const size_t bytes = size * options.dtype().itemsize();
    std::shared_ptr<char> memory = communicator_->Allocate(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, memory, "shm: rank ", getRank(), " has no room for a shared tensor of ", bytes,
                     " bytes");
    char* const data = memory.get();
    return at::from_blob(
        data, {size}, [memory](void*) mutable { memory.reset(); }, options.device(at::kCPU));
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    Request request = Of(Kind::kBroadcast, One("broadcast", tensors));
    request.root = static_cast<int>(options.rootRank);
    request.buffers = {BufferOf("broadcast", tensors[0])};
    return Start(c10d::OpType::BROADCAST, std::move(request), {tensors[0]}, tensors);
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    One("all_reduce", tensors);
    return MakeWork(c10d::OpType::ALLREDUCE, {StartAllReduce(tensors[0], options.reduceOp)}, {});
  }

  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    for (const at::Tensor& tensor : tensors) OpFor("all_reduce", options.reduceOp, tensor);
    Operations operations;
    for (const at::Tensor& tensor : tensors) operations.push_back(StartAllReduce(tensor, options.reduceOp));
    return MakeWork(c10d::OpType::ALLREDUCE_COALESCED, std::move(operations), tensors);
  }

  bool InSharedMemory(const at::Tensor& tensor) const override {
    return communicator_->Owns(tensor.const_data_ptr(), tensor.nbytes());
  }
  int64_t PlaceOf(const at::Tensor& tensor) const override { return communicator_->PlaceOf(tensor.const_data_ptr()); }
  at::Tensor AtPlace(int64_t place, int64_t bytes) const override {
    std::shared_ptr<char> memory = communicator_->AtPlace(place, bytes);
    TORCH_CHECK(memory, "shm: rank ", getRank(), " finds no ", bytes, " bytes at ", place, " of the shared memory");
    char* const data = memory.get();
    return at::from_blob(
        data, {bytes}, [memory](void*) mutable { memory.reset(); }, at::kByte);
  }
  WorkPtr TreeSum(const at::Tensor& output, const std::vector<at::Tensor>& sums,
                  std::shared_ptr<const TreeSumOrder> order) override {
    Request request = Of(Kind::kTreeSum, output);
    for (const at::Tensor& sum : sums) request.buffers.push_back(BufferOf("tree_sum", sum));
    request.results = {BufferOf("tree_sum", output)};
    request.tree = std::move(order);
    return Start(c10d::OpType::ALLREDUCE, std::move(request), Held(sums, output), {output});
  }

  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    Request request = Of(Kind::kReduce, One("reduce", tensors));
    SetOp(request, "reduce", options.reduceOp, tensors[0]);
    request.root = static_cast<int>(options.rootRank);
    request.buffers = {BufferOf("reduce", tensors[0])};
    if (IsRoot(options)) request.results = request.buffers;
    return Start(c10d::OpType::REDUCE, std::move(request), {tensors[0]}, tensors);
  }

  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions&) override {
    Request request = Of(Kind::kAllGather, One("all_gather", inputs));
    request.buffers = {BufferOf("all_gather", inputs[0])};
    request.results = List("all_gather", outputs.at(0));
    return Start(c10d::OpType::ALLGATHER, std::move(request), Held(outputs[0], inputs[0]), outputs[0]);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    Request request = Of(Kind::kAllGather, input);
    request.buffers = {BufferOf("all_gather_into_tensor", input)};
    request.results = Cut("all_gather_into_tensor", output, getSize());
    CheckSizes("all_gather_into_tensor", request.results, input.nbytes());
    return Start(c10d::OpType::_ALLGATHER_BASE, std::move(request), {output, input}, {output});
  }

  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& options) override {
    Request request = Of(Kind::kGather, One("gather", inputs));
    request.root = static_cast<int>(options.rootRank);
    request.buffers = {BufferOf("gather", inputs[0])};
    if (!IsRoot(options)) return Start(c10d::OpType::GATHER, std::move(request), {inputs[0]}, {});
    request.results = List("gather", outputs.at(0));
    CheckSizes("gather", request.results, inputs[0].nbytes());
    return Start(c10d::OpType::GATHER, std::move(request), Held(outputs[0], inputs[0]), outputs[0]);
  }

  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    Request request = Of(Kind::kScatter, One("scatter", outputs));
    request.root = static_cast<int>(options.rootRank);
    request.results = {BufferOf("scatter", outputs[0])};
    if (!IsRoot(options)) return Start(c10d::OpType::SCATTER, std::move(request), {outputs[0]}, outputs);
    request.buffers = List("scatter", inputs.at(0));
    CheckSizes("scatter", request.buffers, outputs[0].nbytes());
    return Start(c10d::OpType::SCATTER, std::move(request), Held(inputs[0], outputs[0]), outputs);
  }

  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    Request request = Of(Kind::kReduceScatter, One("reduce_scatter", outputs));
    SetOp(request, "reduce_scatter", options.reduceOp, outputs[0]);
    request.buffers = List("reduce_scatter", inputs.at(0));
    request.results = {BufferOf("reduce_scatter", outputs[0])};
    CheckSizes("reduce_scatter", request.buffers, outputs[0].nbytes());
    return Start(c10d::OpType::REDUCE_SCATTER, std::move(request), Held(inputs[0], outputs[0]), outputs);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    Request request = Of(Kind::kReduceScatter, output);
    SetOp(request, "reduce_scatter_tensor", options.reduceOp, output);
    request.buffers = Cut("reduce_scatter_tensor", input, getSize());
    request.results = {BufferOf("reduce_scatter_tensor", output)};
    CheckSizes("reduce_scatter_tensor", request.buffers, output.nbytes());
    return Start(c10d::OpType::_REDUCE_SCATTER_BASE, std::move(request), {output, input}, {output});
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    Request request = Of(Kind::kAllToAll, input);
    request.buffers = Cut("all_to_all_single", input, getSize(), input_splits);
    request.results = Cut("all_to_all_single", output, getSize(), output_splits);
    return Start(c10d::OpType::ALLTOALL_BASE, std::move(request), {output, input}, {output});
  }

  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions&) override {
    Request request = Of(Kind::kAllToAll, inputs.at(0));
    request.buffers = List("all_to_all", inputs);
    request.results = List("all_to_all", outputs);
    Tensors held(inputs.begin(), inputs.end());
    held.insert(held.end(), outputs.begin(), outputs.end());
    return Start(c10d::OpType::ALLTOALL, std::move(request), std::move(held), outputs);
  }

  WorkPtr send(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    const Buffer buffer = BufferOf("send", One("send", tensors));
    return MakeWork(c10d::OpType::SEND, {communicator_->Send(peer, tag, buffer, Hold({tensors[0]}))}, {});
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    const Buffer buffer = BufferOf("recv", One("recv", tensors));
    return MakeWork(c10d::OpType::RECV, {communicator_->Receive(peer, tag, buffer, Hold({tensors[0]}))}, tensors);
  }
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    const Buffer buffer = BufferOf("recv", One("recv", tensors));
    return MakeWork(c10d::OpType::RECVANYSOURCE, {communicator_->Receive(-1, tag, buffer, Hold({tensors[0]}))},
                    tensors);
  }

  WorkPtr barrier(const c10d::BarrierOptions&) override { return Start(c10d::OpType::BARRIER, Request(), {}, {}); }

 private:
  static const at::Tensor& One(const char* operation, const std::vector<at::Tensor>& tensors) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "shm: ", operation, " takes one tensor, found ", tensors.size());
    return tensors[0];
  }
  static Request Of(Kind kind, const at::Tensor& tensor) {
    Request request;
    request.kind = kind;
    request.dtype = DTypeOf(tensor);
    return request;
  }
  static void SetOp(Request& request, const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor) {
    request.op = OpFor(operation, op, tensor);
    request.factor = FactorOf(op);
  }
  static std::shared_ptr<void> Hold(Tensors tensors) { return std::make_shared<Tensors>(std::move(tensors)); }
  static Tensors Held(const std::vector<at::Tensor>& tensors, const at::Tensor& one) {
    Tensors held(tensors.begin(), tensors.end());
    held.push_back(one);
    return held;
  }
  static void CheckSizes(const char* operation, const Buffers& buffers, size_t bytes) {
    for (const Buffer& buffer : buffers) {
      TORCH_CHECK_VALUE(buffer.bytes == bytes, "shm: ", operation, ": a part has ", buffer.bytes, " bytes, expected ",
                        bytes);
    }
  }
  Buffers List(const char* operation, const std::vector<at::Tensor>& tensors) const {
    TORCH_CHECK_VALUE(static_cast<int>(tensors.size()) == getSize(), "shm: ", operation, " takes a list of ", getSize(),
                      " tensors, found ", tensors.size());
    Buffers buffers;
    for (const at::Tensor& tensor : tensors) buffers.push_back(BufferOf(operation, tensor));
    return buffers;
  }
  template <typename Options>
  bool IsRoot(const Options& options) const {
    return getRank() == options.rootRank;
  }

  std::shared_ptr<Operation> StartAllReduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
    Request request = Of(Kind::kAllReduce, tensor);
    SetOp(request, "all_reduce", op, tensor);
    request.buffers = {BufferOf("all_reduce", tensor)};
    request.owner = Hold({tensor});
    return communicator_->Start(std::move(request));
  }
  WorkPtr Start(c10d::OpType type, Request request, Tensors held, std::vector<at::Tensor> results) {
    request.owner = Hold(std::move(held));
    return MakeWork(type, {communicator_->Start(std::move(request))}, std::move(results));
  }
  WorkPtr MakeWork(c10d::OpType type, Operations operations, std::vector<at::Tensor> results) {
    return c10::make_intrusive<ShmWork>(communicator_, type, std::move(operations), std::move(results), timeout_);
  }

  const std::shared_ptr<Communicator> communicator_;
  const absl::Duration timeout_;
};

Exchange Through(const c10::intrusive_ptr<c10d::Store>& store) {
  Exchange exchange;
  exchange.set = [store](const std::string& key, const std::string& value) {
    return TorchStatus("publishing the shared memory", [&] { store->set(key, value); });
  };
  exchange.get = [store](const std::string& key, absl::Time deadline) {
    return TorchStatusOr("waiting for rank 0's shared memory", [&] {
      store->wait({key}, absl::ToChronoMilliseconds(std::max(deadline - absl::Now(), absl::Milliseconds(1))));
      return store->get_to_str(key);
    });
  };
  // The group's store throws once the group has failed. A check of no key is not a request.
  exchange.check = [store] { return TorchStatus("making the shared memory", [&] { store->check({}); }); };
  return exchange;
}

}  // namespace

absl::Status UsableOnOneHost(const BackendContext& context) {
  if (context.ranks.empty()) return absl::FailedPreconditionError("shm needs every rank to be a Lockstep rank");
  for (const RankIdentity& other : context.ranks) {
    if (OnOneHost(context.ranks[0], other)) continue;
    return absl::FailedPreconditionError(absl::StrCat("shm needs all ranks on one host, but ", NameOf(other),
                                                      " shares no memory with ", NameOf(context.ranks[0])));
  }
  return absl::OkStatus();
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeBackend(const BackendContext& context) {
  CommunicatorOptions options;
  options.rank = context.rank;
  options.size = context.size;
  options.exchange = Through(context.store);
  options.deadline = absl::Now() + context.timeout;
  auto communicator = Communicator::Create(options);
  if (!communicator.ok()) return Annotate(communicator.status(), "making the shm backend");
  return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<ShmBackend>(*std::move(communicator), context.timeout));
}

}  // namespace lockstep::comm::shm::internal
