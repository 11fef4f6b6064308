#include "lockstep/comm/testing/thread_hub.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"

namespace lockstep::comm::testing {
namespace {

using c10d::OpType;

std::exception_ptr Error(const std::string& message) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, message));
}

class ThreadWork : public c10d::Work {
 public:
  ThreadWork(int rank, OpType type, std::weak_ptr<ThreadHub::Impl> hub, absl::Duration timeout, int64_t sequence)
      : Work(rank, type), hub_(std::move(hub)), timeout_(absl::ToChronoMilliseconds(timeout)), sequence_(sequence) {}

  int rank() const { return rank_; }
  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return source_; }

  // The first of them counts.
  void Finish(std::exception_ptr error, int source = -1) {
    if (finished_.exchange(true)) return;
    source_ = source;
    finish(std::move(error));
  }

 private:
  const std::weak_ptr<ThreadHub::Impl> hub_;
  const std::chrono::milliseconds timeout_;
  const int64_t sequence_;  // -1: of a send or receive
  std::atomic<bool> finished_{false};
  int source_ = -1;
};

using ThreadWorkPtr = c10::intrusive_ptr<ThreadWork>;

// A send or receive that waits for its counterpart.
struct Message {
  bool is_send = false;
  int rank = 0;   // the caller
  int peer = -1;  // -1: any
  int tag = 0;
  at::Tensor tensor;
  ThreadWorkPtr work;
};

bool Matches(const Message& send, const Message& receive) {
  return send.is_send && !receive.is_send && send.tag == receive.tag && send.peer == receive.rank &&
         (receive.peer < 0 || receive.peer == send.rank);
}

void Deliver(const Message& send, const Message& receive) {
  std::exception_ptr error;
  try {
    const at::NoGradGuard no_grad;
    TORCH_CHECK_VALUE(
        send.tensor.numel() == receive.tensor.numel() && send.tensor.scalar_type() == receive.tensor.scalar_type(),
        "rank ", send.rank, " sends ", send.tensor.numel(), " of ", c10::toString(send.tensor.scalar_type()),
        ", but rank ", receive.rank, " receives ", receive.tensor.numel(), " of ",
        c10::toString(receive.tensor.scalar_type()));
    receive.tensor.view({-1}).copy_(send.tensor.view({-1}));
  } catch (...) {
    error = std::current_exception();
  }
  send.work->Finish(error);
  receive.work->Finish(error, send.rank);
}

}  // namespace

class ThreadHub::Impl : public std::enable_shared_from_this<ThreadHub::Impl> {
 public:
  Impl(int size, absl::Duration timeout)
      : size_(size), timeout_(timeout), next_(size, 0), left_(size), aborted_(size, false) {}

  int size() const { return size_; }
  WorkPtr Join(int rank, ThreadCall call);
  WorkPtr Post(Message message);
  void Leave(int rank, const std::string& reason);
  void Abort(int rank);
  std::string MissingRanks(int64_t sequence) const;

 private:
  struct Slot {
    std::map<int, ThreadCall> calls;
    bool aborted = false;  // a rank that had called it has aborted
    std::vector<ThreadWorkPtr> works;
  };

  ThreadWorkPtr NewWork(int rank, OpType type, int64_t sequence) {
    return c10::make_intrusive<ThreadWork>(rank, type, weak_from_this(), timeout_, sequence);
  }
  // The slot of this call if it is the last to come.
  std::optional<Slot> EnterLocked(int rank, ThreadCall call, ThreadWorkPtr& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why the collective `slot`, or `message`, cannot be completed any more, or nullptr.
  std::exception_ptr LostLocked(const Slot& slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::exception_ptr LostLocked(const Message& message) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int size_;
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::list<Message> messages_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> next_ ABSL_GUARDED_BY(mutex_);                     // each rank's next sequence number
  std::vector<std::optional<std::string>> left_ ABSL_GUARDED_BY(mutex_);  // why a rank left
  std::vector<bool> aborted_ ABSL_GUARDED_BY(mutex_);
};

bool ThreadWork::wait(std::chrono::milliseconds timeout) {
  const auto limit = timeout.count() > 0 ? std::min(timeout, timeout_) : timeout_;
  std::unique_lock<std::mutex> lock(mutex_);
  if (!cv_.wait_for(lock, limit, [this] { return completed_; })) {
    const auto hub = hub_.lock();
    const std::string missing = hub && sequence_ >= 0 ? " waiting for ranks " + hub->MissingRanks(sequence_) : "";
    TORCH_CHECK_WITH(DistBackendError, false, "timed out after ", limit.count(), " ms", missing);
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

std::exception_ptr ThreadHub::Impl::LostLocked(const Slot& slot) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (left_[rank] && slot.calls.count(rank) == 0) {
      return Error(absl::StrCat("rank ", rank, " left the group: ", *left_[rank]));
    }
  }
  return nullptr;
}

std::exception_ptr ThreadHub::Impl::LostLocked(const Message& message) const {
  if (message.peer < 0 || !left_[message.peer]) return nullptr;
  return Error(absl::StrCat("rank ", message.peer, " left the group: ", *left_[message.peer]));
}

std::optional<ThreadHub::Impl::Slot> ThreadHub::Impl::EnterLocked(int rank, ThreadCall call, ThreadWorkPtr& work) {
  const int64_t sequence = next_[rank]++;
  work = NewWork(rank, call.type, sequence);
  if (aborted_[rank]) {
    work->Finish(Error("the group was aborted"));
    return std::nullopt;
  }
  Slot& slot = slots_[sequence];
  slot.calls.emplace(rank, std::move(call));
  slot.works.push_back(work);
  if (const std::exception_ptr lost = LostLocked(slot)) {
    work->Finish(lost);
    return std::nullopt;
  }
  if (static_cast<int>(slot.calls.size()) < size_) return std::nullopt;
  Slot complete = std::move(slot);
  slots_.erase(sequence);
  return complete;
}

ThreadHub::WorkPtr ThreadHub::Impl::Join(int rank, ThreadCall call) {
  ThreadWorkPtr work;
  std::optional<Slot> complete;
  {
    MutexLock lock(mutex_);
    complete = EnterLocked(rank, std::move(call), work);
  }
  if (!complete) return work;
  std::vector<ThreadCall> calls;
  for (auto& entry : complete->calls) calls.push_back(std::move(entry.second));
  std::exception_ptr error;
  try {
    TORCH_CHECK_WITH(DistBackendError, !complete->aborted, "another rank has aborted the group");
    CarryOut(calls);
  } catch (...) {
    error = std::current_exception();
  }
  for (const auto& waiting : complete->works) waiting->Finish(error);
  return work;
}

ThreadHub::WorkPtr ThreadHub::Impl::Post(Message message) {
  message.work = NewWork(message.rank, message.is_send ? OpType::SEND : OpType::RECV, -1);
  const ThreadWorkPtr work = message.work;
  MutexLock lock(mutex_);
  if (aborted_[message.rank]) {
    work->Finish(Error("the group was aborted"));
    return work;
  }
  const auto other = std::find_if(messages_.begin(), messages_.end(), [&](const Message& waiting) {
    return message.is_send ? Matches(message, waiting) : Matches(waiting, message);
  });
  if (other != messages_.end()) {
    message.is_send ? Deliver(message, *other) : Deliver(*other, message);
    messages_.erase(other);
  } else if (const std::exception_ptr lost = LostLocked(message)) {
    work->Finish(lost);
  } else {
    messages_.push_back(std::move(message));
  }
  return work;
}

void ThreadHub::Impl::Leave(int rank, const std::string& reason) {
  MutexLock lock(mutex_);
  if (left_[rank]) return;
  left_[rank] = reason;
  for (auto& entry : slots_) {
    if (const std::exception_ptr lost = LostLocked(entry.second)) {
      for (const auto& work : entry.second.works) work->Finish(lost);
    }
  }
  for (const Message& message : messages_) {
    if (const std::exception_ptr lost = LostLocked(message)) message.work->Finish(lost);
  }
}

void ThreadHub::Impl::Abort(int rank) {
  MutexLock lock(mutex_);
  aborted_[rank] = true;
  for (auto& entry : slots_) {
    entry.second.aborted |= entry.second.calls.count(rank) > 0;
    for (const auto& work : entry.second.works) {
      if (work->rank() == rank) work->Finish(Error("the group was aborted"));
    }
  }
  messages_.remove_if([&](const Message& message) {
    if (message.rank == rank) message.work->Finish(Error("the group was aborted"));
    return message.rank == rank;
  });
}

std::string ThreadHub::Impl::MissingRanks(int64_t sequence) const {
  MutexLock lock(mutex_);
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
void ThreadHub::Abort(int rank) { impl_->Abort(rank); }

int ThreadPort::size() const { return hub_->size(); }
ThreadHub::WorkPtr ThreadPort::Join(ThreadCall call) const { return hub_->Join(rank_, std::move(call)); }
void ThreadPort::Abort() const { hub_->Abort(rank_); }
void ThreadPort::Leave(const std::string& reason) const { hub_->Leave(rank_, reason); }

ThreadHub::WorkPtr ThreadPort::Send(at::Tensor tensor, int to, int tag) const {
  return hub_->Post({/*is_send=*/true, rank_, to, tag, std::move(tensor), {}});
}

ThreadHub::WorkPtr ThreadPort::Receive(at::Tensor tensor, int from, int tag) const {
  return hub_->Post({/*is_send=*/false, rank_, from, tag, std::move(tensor), {}});
}

}  // namespace lockstep::comm::testing
