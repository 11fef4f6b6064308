// The "hierarchical" backend: all_reduce, all_gather and tree_scatter over shared memory within a host and TCP between
// hosts, all else over Gloo.

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/hierarchical/internal/address.h"
#include "lockstep/comm/hierarchical/internal/exchange.h"
#include "lockstep/comm/hierarchical/internal/gather_exchange.h"
#include "lockstep/comm/hierarchical/internal/host_exchange.h"
#include "lockstep/comm/hierarchical/internal/links.h"
#include "lockstep/comm/hierarchical/internal/piece.h"
#include "lockstep/comm/hierarchical/internal/pipeline.h"
#include "lockstep/comm/hierarchical/internal/topology.h"
#include "lockstep/comm/internal/tree_sum_backend.h"

namespace lockstep::comm::hierarchical {
namespace {

using internal::AddressForOtherHosts;
using internal::Call;
using internal::Exchange;
using internal::GatherExchange;
using internal::HostExchange;
using internal::Levels;
using internal::Links;
using internal::LinksOptions;
using internal::Pipeline;
using internal::Topology;
using internal::TopologyOf;

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class HierarchicalWork final : public c10d::Work {
 public:
  HierarchicalWork(int rank, c10d::OpType type, std::shared_ptr<Pipeline> pipeline, std::shared_ptr<Call> call,
                   std::vector<at::Tensor> tensors)
      : Work(rank, type), pipeline_(std::move(pipeline)), call_(std::move(call)), tensors_(std::move(tensors)) {}

  bool isCompleted() override { return pipeline_->Test(*call_); }
  std::vector<at::Tensor> result() override { return tensors_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout) override {
    pipeline_->Finish(*call_, timeout);
    return true;
  }

 private:
  const std::shared_ptr<Pipeline> pipeline_;
  const std::shared_ptr<Call> call_;
  const std::vector<at::Tensor> tensors_;
};

class HierarchicalBackend final : public c10d::Backend, public comm::internal::HostSumBackend {
 public:
  HierarchicalBackend(int rank, int size, std::shared_ptr<Pipeline> pipeline, BackendPtr flat)
      : Backend(rank, size), pipeline_(std::move(pipeline)), flat_(std::move(flat)) {
    if (pipeline_->levels().even) hosts_ = pipeline_->levels().hosts;
  }
  ~HierarchicalBackend() override { pipeline_->Stop(); }

  const std::string getBackendName() const override { return "hierarchical"; }

  void abort() override {
    pipeline_->Abort();
    flat_->abort();
  }
  void shutdown() override { abort(); }
  void waitForPendingWorks() override { pipeline_->FinishAll(); }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return AllReduce(c10d::OpType::ALLREDUCE, tensors, options.reduceOp);
  }
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return AllReduce(c10d::OpType::ALLREDUCE_COALESCED, tensors, options.reduceOp);
  }

  const std::vector<std::vector<int>>& hosts() const override { return hosts_; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return pipeline_->levels().inward->allocateTensor(size, options);
  }
  WorkPtr SumOnHosts(const at::Tensor& received, const at::Tensor& leaf,
                     std::shared_ptr<const comm::internal::HostSums> sums) override {
    return Start(c10d::OpType::REDUCE_SCATTER,
                 std::make_unique<HostExchange>(pipeline_->levels(), received, leaf, std::move(sums)), {received});
  }

  // If the hosts have different numbers of ranks, Gloo gathers.
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    if (hosts_.empty()) return flat_->allgather(outputs, inputs, options);
    return AllGather(c10d::OpType::ALLGATHER, outputs.at(0), inputs.at(0));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    if (hosts_.empty()) return flat_->_allgather_base(output, input, options);
    TORCH_CHECK_VALUE(output.numel() == input.numel() * getSize(),
                      "hierarchical: all_gather_into_tensor: the output has ", output.numel(), " elements, expected ",
                      input.numel() * getSize());
    const at::Tensor rows = output.detach().view({getSize(), input.numel()});
    return AllGather(c10d::OpType::_ALLGATHER_BASE, rows.unbind(), input);
  }

  // The other collectives use Gloo, whichever ranks they join.
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return flat_->broadcast(tensors, options);
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    return flat_->reduce(tensors, options);
  }
  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& options) override {
    return flat_->gather(outputs, inputs, options);
  }
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    return flat_->scatter(outputs, inputs, options);
  }
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return flat_->reduce_scatter(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return flat_->_reduce_scatter_base(output, input, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return flat_->alltoall_base(output, input, output_splits, input_splits, options);
  }
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& options) override {
    return flat_->alltoall(outputs, inputs, options);
  }
  WorkPtr send(std::vector<at::Tensor>& tensors, int peer, int tag) override { return flat_->send(tensors, peer, tag); }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int peer, int tag) override { return flat_->recv(tensors, peer, tag); }
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    return flat_->recvAnysource(tensors, tag);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return flat_->barrier(options); }

 private:
  WorkPtr Start(c10d::OpType type, std::unique_ptr<Exchange> exchange, std::vector<at::Tensor> tensors) {
    return c10::make_intrusive<HierarchicalWork>(getRank(), type, pipeline_, pipeline_->Push(std::move(exchange)),
                                                 std::move(tensors));
  }
  WorkPtr AllGather(c10d::OpType type, const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
    return Start(type, std::make_unique<GatherExchange>(pipeline_->levels(), outputs, input), outputs);
  }
  WorkPtr AllReduce(c10d::OpType type, const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op) {
    return c10::make_intrusive<HierarchicalWork>(getRank(), type, pipeline_, pipeline_->Push(tensors, op), tensors);
  }

  const std::shared_ptr<Pipeline> pipeline_;
  const BackendPtr flat_;
  std::vector<std::vector<int>> hosts_;  // empty if they have different numbers of ranks
};

absl::Status UsableOnSeveralHosts(const BackendContext& context) {
  if (context.ranks.empty())
    return absl::FailedPreconditionError("hierarchical needs every rank to be a Lockstep rank");
  const Topology topology = TopologyOf(context.ranks, context.rank);
  if (topology.hosts.size() == 1) return absl::FailedPreconditionError("hierarchical is for ranks on several hosts");
  if (topology.hosts.size() == context.ranks.size()) {
    return absl::FailedPreconditionError("hierarchical is for hosts with several ranks");
  }
  return absl::OkStatus();
}

// Creates the backend `name` among `ranks`, which include this rank.
absl::StatusOr<BackendPtr> MakeAmong(const std::vector<int>& ranks, const std::string& name, const std::string& purpose,
                                     const BackendContext& context) {
  LOCKSTEP_ASSIGN_OR_RETURN(const BackendInfo info, FindBackend(name));
  BackendContext among = context;
  // Groups for one purpose have no rank in common, so the number of their first rank distinguishes them.
  among.store = c10::make_intrusive<c10d::PrefixStore>(absl::StrCat(purpose, "/", ranks[0], "/"), context.store);
  among.size = static_cast<int>(ranks.size());
  among.ranks.clear();
  for (int i = 0; i < among.size; ++i) {
    if (ranks[i] == context.rank) among.rank = i;
    among.ranks.push_back(context.ranks[ranks[i]]);
  }
  auto backend = info.create(among);
  if (!backend.ok()) return Annotate(backend.status(), absl::StrCat(purpose, " of the hierarchical backend"));
  return backend;
}

// The connections of this rank's column.
absl::StatusOr<std::unique_ptr<Links>> MakeLinks(const std::vector<int>& column, const BackendContext& context) {
  LinksOptions options;
  options.size = static_cast<int>(column.size());
  for (int i = 0; i < options.size; ++i) {
    if (column[i] == context.rank) options.rank = i;
  }
  options.names = column;
  options.lanes = options.size == 2 ? 1 : 2;
  LOCKSTEP_ASSIGN_OR_RETURN(options.address, AddressForOtherHosts(context.master_addr));
  // Columns have no rank in common, so the number of the first rank distinguishes them.
  const auto store = c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("across/", column[0], "/"), context.store);
  options.publish = [store](const std::string& key, const std::string& value) {
    return TorchStatus("publishing an address for the other hosts", [&] { store->set(key, value); });
  };
  options.read = [store](const std::string& key, absl::Time deadline) {
    return TorchStatusOr("waiting for the address of another host's rank", [&] {
      store->wait({key}, absl::ToChronoMilliseconds(std::max(deadline - absl::Now(), absl::Milliseconds(1))));
      return store->get_to_str(key);
    });
  };
  // The group's store throws once the group has failed. A check of no key is not a request.
  options.check = [store] { return TorchStatus("connecting the hosts", [&] { store->check({}); }); };
  options.deadline = absl::Now() + context.timeout;
  return Links::Create(options);
}

absl::StatusOr<BackendPtr> Create(const BackendContext& context) {
  const Topology topology = TopologyOf(context.ranks, context.rank);
  Levels levels;
  levels.even = topology.even();
  levels.hosts = topology.hosts;
  levels.size = context.size;
  LOCKSTEP_ASSIGN_OR_RETURN(levels.inward, MakeAmong(topology.local_ranks(), "shm", "inward", context));
  LOCKSTEP_ASSIGN_OR_RETURN(levels.outward, MakeAmong(topology.local_ranks(), "shm", "outward", context));
  if (levels.even || topology.local_rank == 0) {
    auto links = MakeLinks(topology.column(), context);
    if (!links.ok()) return Annotate(links.status(), "making the hierarchical backend");
    levels.links = *std::move(links);
  }
  std::vector<int> all(context.size);
  for (int r = 0; r < context.size; ++r) all[r] = r;
  BackendContext flat_context = context;
  flat_context.connect_lazily = true;  // many programs use no other collective
  LOCKSTEP_ASSIGN_OR_RETURN(BackendPtr flat, MakeAmong(all, "gloo", "flat", flat_context));
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Pipeline> pipeline,
                            Pipeline::Create(std::move(levels), absl::ToChronoMilliseconds(context.timeout)));
  return BackendPtr(
      c10::make_intrusive<HierarchicalBackend>(context.rank, context.size, std::move(pipeline), std::move(flat)));
}

[[maybe_unused]] const bool registered =
    RegisterBackend({"hierarchical", {c10::DeviceType::CPU}, /*preference=*/20, UsableOnSeveralHosts, Create});

}  // namespace
}  // namespace lockstep::comm::hierarchical
