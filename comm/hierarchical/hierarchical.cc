// The "hierarchical" backend: shared memory within a host, Gloo between hosts.

#include <deque>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/hierarchical/internal/all_reduce.h"
#include "lockstep/comm/hierarchical/internal/topology.h"

namespace lockstep::comm::hierarchical {
namespace {

using internal::AllReducePhases;
using internal::Levels;
using internal::Topology;
using internal::TopologyOf;

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The calls under way, oldest first. Every rank takes their phases in the order of the calls, whichever call it waits
// for.
class Queue {
 public:
  explicit Queue(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  struct Entry {
    std::vector<std::unique_ptr<AllReducePhases>> parts;
    bool done = false;
    std::exception_ptr error;
  };

  void Push(const std::shared_ptr<Entry>& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(entry);
    TestLocked();
  }

  bool Test(const Entry& entry) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;  // another thread advances it
    TestLocked();
    return entry.done;
  }

  void Finish(const Entry& entry, std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + (timeout.count() > 0 ? timeout : timeout_);
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!entry.done) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      Take(*entries_.front(), [&](AllReducePhases& part) {
        part.Finish(std::max(left, std::chrono::milliseconds(1)));
        return true;
      });
      entries_.pop_front();
    }
    if (entry.error) std::rethrow_exception(entry.error);
  }

  void FinishAll() {
    std::shared_ptr<Entry> last;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (entries_.empty()) return;
      last = entries_.back();
    }
    Finish(*last, timeout_);
  }

 private:
  void TestLocked() {
    while (!entries_.empty() && Take(*entries_.front(), [](AllReducePhases& part) { return part.Test(); })) {
      entries_.pop_front();
    }
  }

  // Whether the entry is done, with success or with an error, which is kept.
  template <typename Function>
  static bool Take(Entry& entry, const Function& take) {
    try {
      for (const auto& part : entry.parts) {
        if (!take(*part)) return false;
      }
    } catch (...) {
      entry.error = std::current_exception();
    }
    entry.parts.clear();
    entry.done = true;
    return true;
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Entry>> entries_;
};

class HierarchicalWork final : public c10d::Work {
 public:
  HierarchicalWork(int rank, c10d::OpType type, std::shared_ptr<Queue> queue, std::shared_ptr<Queue::Entry> entry,
                   std::vector<at::Tensor> tensors)
      : Work(rank, type), queue_(std::move(queue)), entry_(std::move(entry)), tensors_(std::move(tensors)) {}

  bool isCompleted() override { return queue_->Test(*entry_); }
  std::vector<at::Tensor> result() override { return tensors_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout) override {
    queue_->Finish(*entry_, timeout);
    return true;
  }

 private:
  const std::shared_ptr<Queue> queue_;
  const std::shared_ptr<Queue::Entry> entry_;
  const std::vector<at::Tensor> tensors_;
};

class HierarchicalBackend final : public c10d::Backend {
 public:
  HierarchicalBackend(int rank, Levels levels, BackendPtr flat, std::chrono::milliseconds timeout)
      : Backend(rank, levels.size),
        levels_(std::move(levels)),
        flat_(std::move(flat)),
        queue_(std::make_shared<Queue>(timeout)) {}

  const std::string getBackendName() const override { return "hierarchical"; }

  void abort() override {
    for (const BackendPtr& backend : {levels_.inward, levels_.across, levels_.outward, flat_}) {
      if (backend) backend->abort();
    }
  }
  void shutdown() override { abort(); }
  void waitForPendingWorks() override { queue_->FinishAll(); }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return AllReduce(c10d::OpType::ALLREDUCE, tensors, options.reduceOp);
  }
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return AllReduce(c10d::OpType::ALLREDUCE_COALESCED, tensors, options.reduceOp);
  }

  // The other collectives use the hosts' network, whichever ranks they join.
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return flat_->broadcast(tensors, options);
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    return flat_->reduce(tensors, options);
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    return flat_->allgather(outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return flat_->_allgather_base(output, input, options);
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
  WorkPtr AllReduce(c10d::OpType type, const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op) {
    auto entry = std::make_shared<Queue::Entry>();
    for (const at::Tensor& tensor : tensors) {
      entry->parts.push_back(std::make_unique<AllReducePhases>(levels_, tensor, op));
    }
    queue_->Push(entry);
    return c10::make_intrusive<HierarchicalWork>(getRank(), type, queue_, std::move(entry), tensors);
  }

  const Levels levels_;
  const BackendPtr flat_;
  const std::shared_ptr<Queue> queue_;
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

absl::StatusOr<BackendPtr> Create(const BackendContext& context) {
  const Topology topology = TopologyOf(context.ranks, context.rank);
  Levels levels;
  levels.even = topology.even();
  levels.size = context.size;
  LOCKSTEP_ASSIGN_OR_RETURN(levels.inward, MakeAmong(topology.local_ranks(), "shm", "inward", context));
  LOCKSTEP_ASSIGN_OR_RETURN(levels.outward, MakeAmong(topology.local_ranks(), "shm", "outward", context));
  if (levels.even || topology.local_rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(levels.across, MakeAmong(topology.column(), "gloo", "across", context));
  }
  std::vector<int> all(context.size);
  for (int r = 0; r < context.size; ++r) all[r] = r;
  LOCKSTEP_ASSIGN_OR_RETURN(BackendPtr flat, MakeAmong(all, "gloo", "flat", context));
  return BackendPtr(c10::make_intrusive<HierarchicalBackend>(context.rank, std::move(levels), std::move(flat),
                                                             absl::ToChronoMilliseconds(context.timeout)));
}

[[maybe_unused]] const bool registered =
    RegisterBackend({"hierarchical", {c10::DeviceType::CPU}, /*preference=*/20, UsableOnSeveralHosts, Create});

}  // namespace
}  // namespace lockstep::comm::hierarchical
