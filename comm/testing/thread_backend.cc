#include "lockstep/comm/testing/thread_backend.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"

namespace lockstep::comm::testing {
namespace {

using c10d::OpType;

// One rank's call of one collective.
struct Call {
  OpType type = OpType::UNKNOWN;
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  int64_t root = 0;
  at::Tensor tensor;                // undefined for a barrier
  std::vector<at::Tensor> outputs;  // all_gather only
};

std::string Describe(const Call& call) {
  std::string text = c10d::opTypeToString(call.type);
  if (call.type == OpType::BROADCAST) absl::StrAppend(&text, " from ", call.root);
  if (call.tensor.defined()) {
    absl::StrAppend(&text, " of ", c10::toString(call.tensor.scalar_type()), " [",
                    absl::StrJoin(call.tensor.sizes(), ", "), "]");
  }
  return text;
}

void Combine(at::Tensor& sum, const at::Tensor& next, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      sum.add_(next);
      return;
    case c10d::ReduceOp::PRODUCT:
      sum.mul_(next);
      return;
    case c10d::ReduceOp::MIN:
      at::minimum_out(sum, sum, next);
      return;
    case c10d::ReduceOp::MAX:
      at::maximum_out(sum, sum, next);
      return;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "this reduction is not implemented between threads");
  }
}

void CarryOut(std::vector<Call>& calls) {
  at::NoGradGuard no_grad;
  for (size_t rank = 1; rank < calls.size(); ++rank) {
    const std::string first = Describe(calls[0]), other = Describe(calls[rank]);
    TORCH_CHECK_VALUE(first == other && calls[0].op == calls[rank].op, "rank 0 called ", first, ", but rank ", rank,
                      " called ", other);
  }
  switch (calls[0].type) {
    case OpType::BROADCAST:
      for (Call& call : calls) call.tensor.copy_(calls[calls[0].root].tensor);
      return;
    case OpType::ALLREDUCE: {
      at::Tensor sum = calls[0].tensor.clone();
      for (size_t rank = 1; rank < calls.size(); ++rank) Combine(sum, calls[rank].tensor, calls[rank].op);
      for (Call& call : calls) call.tensor.copy_(sum);
      return;
    }
    case OpType::ALLGATHER:
      for (Call& call : calls) {
        for (size_t rank = 0; rank < calls.size(); ++rank) call.outputs[rank].copy_(calls[rank].tensor);
      }
      return;
    default:
      return;
  }
}

}  // namespace

class ThreadWork;

class ThreadHub::Impl {
 public:
  Impl(int size, absl::Duration timeout) : size_(size), timeout_(timeout), next_(size, 0), left_(size) {}

  int size() const { return size_; }
  absl::Duration timeout() const { return timeout_; }
  c10::intrusive_ptr<c10d::Work> Join(const std::shared_ptr<Impl>& self, int rank, Call call);
  void Leave(int rank, const std::string& reason);
  std::string MissingRanks(int64_t sequence) const;

 private:
  struct Slot {
    std::map<int, Call> calls;
    std::vector<c10::intrusive_ptr<ThreadWork>> works;
  };

  // Why the collective `slot` cannot be completed any more, or nullptr.
  std::exception_ptr LostLocked(const Slot& slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int size_;
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> next_ ABSL_GUARDED_BY(mutex_);                      // each rank's next sequence number
  std::vector<absl::optional<std::string>> left_ ABSL_GUARDED_BY(mutex_);  // why a rank left
};

class ThreadWork : public c10d::Work {
 public:
  ThreadWork(int rank, OpType type, std::shared_ptr<ThreadHub::Impl> hub, int64_t sequence)
      : Work(rank, type), hub_(std::move(hub)), sequence_(sequence) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const auto limit = timeout.count() > 0 ? timeout : absl::ToChronoMilliseconds(hub_->timeout());
    std::unique_lock<std::mutex> lock(mutex_);
    if (!cv_.wait_for(lock, limit, [this] { return completed_; })) {
      TORCH_CHECK_WITH(DistBackendError, false, "timed out after ", limit.count(), " ms waiting for ranks ",
                       hub_->MissingRanks(sequence_));
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  void Finish(std::exception_ptr error) { finish(std::move(error)); }

 private:
  const std::shared_ptr<ThreadHub::Impl> hub_;
  const int64_t sequence_;
};

std::exception_ptr ThreadHub::Impl::LostLocked(const Slot& slot) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (left_[rank] && slot.calls.count(rank) == 0) {
      return std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, __LINE__}, absl::StrCat("rank ", rank, " left the group: ", *left_[rank])));
    }
  }
  return nullptr;
}

c10::intrusive_ptr<c10d::Work> ThreadHub::Impl::Join(const std::shared_ptr<Impl>& self, int rank, Call call) {
  c10::intrusive_ptr<ThreadWork> work;
  Slot complete;
  {
    absl::MutexLock lock(&mutex_);
    const int64_t sequence = next_[rank]++;
    work = c10::make_intrusive<ThreadWork>(rank, call.type, self, sequence);
    Slot& slot = slots_[sequence];
    slot.calls.emplace(rank, std::move(call));
    slot.works.push_back(work);
    if (const std::exception_ptr lost = LostLocked(slot)) {
      work->Finish(lost);
      return work;
    }
    if (static_cast<int>(slot.calls.size()) < size_) return work;
    complete = std::move(slot);
    slots_.erase(sequence);
  }
  std::vector<Call> calls;
  for (auto& entry : complete.calls) calls.push_back(std::move(entry.second));
  std::exception_ptr error;
  try {
    CarryOut(calls);
  } catch (...) {
    error = std::current_exception();
  }
  for (const auto& waiting : complete.works) waiting->Finish(error);
  return work;
}

void ThreadHub::Impl::Leave(int rank, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  left_[rank] = reason;
  for (auto& entry : slots_) {
    if (const std::exception_ptr lost = LostLocked(entry.second)) {
      for (const auto& work : entry.second.works) work->Finish(lost);
    }
  }
}

std::string ThreadHub::Impl::MissingRanks(int64_t sequence) const {
  absl::MutexLock lock(&mutex_);
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (next_[rank] <= sequence) missing.push_back(rank);
  }
  return absl::StrJoin(missing, ", ");
}

ThreadHub::ThreadHub(int size, absl::Duration timeout) : impl_(std::make_shared<Impl>(size, timeout)) {}
ThreadHub::~ThreadHub() = default;
int ThreadHub::size() const { return impl_->size(); }
void ThreadHub::Leave(int rank, const std::string& reason) { impl_->Leave(rank, reason); }

namespace {

class ThreadBackend : public c10d::Backend {
 public:
  ThreadBackend(std::shared_ptr<ThreadHub::Impl> hub, int rank) : Backend(rank, hub->size()), hub_(std::move(hub)) {}

  const std::string getBackendName() const override { return "threads"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    Call call;
    call.type = OpType::BROADCAST;
    call.root = options.rootRank;
    return Join(std::move(call), tensors);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    Call call;
    call.type = OpType::ALLREDUCE;
    call.op = options.reduceOp.op_;
    return Join(std::move(call), tensors);
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions&) override {
    Call call;
    call.type = OpType::ALLGATHER;
    call.outputs = outputs.at(0);
    return Join(std::move(call), inputs);
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    Call call;
    call.type = OpType::BARRIER;
    return hub_->Join(hub_, getRank(), std::move(call));
  }

 private:
  c10::intrusive_ptr<c10d::Work> Join(Call call, const std::vector<at::Tensor>& tensors) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "expected one tensor, found ", tensors.size());
    // Detached: the collective writes tensors that may be leaves that require gradients.
    call.tensor = tensors[0].detach();
    return hub_->Join(hub_, getRank(), std::move(call));
  }

  const std::shared_ptr<ThreadHub::Impl> hub_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeThreadBackend(const ThreadHub& hub, int rank) {
  return c10::make_intrusive<ThreadBackend>(hub.impl(), rank);
}

}  // namespace lockstep::comm::testing
