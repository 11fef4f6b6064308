#ifndef LOCKSTEP_COMM_INTERNAL_GROUP_STATE_H_
#define LOCKSTEP_COMM_INTERNAL_GROUP_STATE_H_

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lockstep/comm/internal/call.h"

namespace c10d {
class Backend;
}

namespace lockstep::comm::internal {

// The functions of comm::Watch that a group uses; see that header. As an interface it lets tests simulate the other
// ranks.
class GroupWatch {
 public:
  virtual ~GroupWatch() = default;
  virtual void Begin(int64_t sequence, const char* operation) = 0;
  virtual void End(int64_t sequence) = 0;
  virtual absl::Status Explain(const absl::Status& error) = 0;
  virtual absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout) = 0;
  virtual absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline) = 0;
  virtual void Abort(const absl::Status& cause) = 0;
};

// The state shared by a group and its Works: the sequence of its calls, its first failure, and everything that this
// failure must reach. All methods may be called from any thread. A call that succeeds takes no lock and builds no
// string here.
class GroupState {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::string name = "world";
    absl::Duration timeout = absl::Minutes(30);
    bool detail = false;  // every rank agrees on each collective before it begins; needs a watch
  };

  explicit GroupState(Options options);
  ~GroupState();

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const std::string& name() const { return options_.name; }
  absl::Duration timeout() const { return options_.timeout; }
  int64_t NextSequence(Call::Kind kind) { return SequenceOf(kind).fetch_add(1, std::memory_order_relaxed); }
  // The number that NextSequence() would return now.
  int64_t PeekSequence(Call::Kind kind) { return SequenceOf(kind).load(std::memory_order_relaxed); }

  // They are aborted when the group fails, or here if it has.
  void SetBackends(std::vector<c10::intrusive_ptr<c10d::Backend>> backends);

  // Before the first call, and not while one is under way.
  void SetWatch(std::shared_ptr<GroupWatch> watch) { watch_ = std::move(watch); }
  const std::shared_ptr<GroupWatch>& watch() const { return watch_; }

  // Returns whether this process has a failed group that is not destroyed yet.
  static bool AnyFailed();

  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // The first failure, or OK.
  absl::Status failure() const;

  // Makes `cause` the group's failure and aborts the backends; does nothing if there is one already.
  void Fail(const absl::Status& cause);

  // Like Fail(), for a cause from the watch, or an error of a call. Unless it is this rank's own error, or the group is
  // being closed, tells the launcher that another rank caused it (launch/report/report.h), before this group reports
  // the failure to any caller.
  void LearnFailure(const absl::Status& cause);

  // LearnFailure() for an error that a backend has learnt without a call. NCCL ends the calls under way then.
  void LearnErrorOf(c10d::Backend& backend);

  // An error of this rank that the watch may make the group's failure.
  void RecordOwnError(const absl::Status& error);

  // Fail(), which also tells the other ranks if there is a watch.
  void Abort(const absl::Status& cause);

  // Releases the backends and the watch, which announces this rank's departure, before the group destroys both. In a
  // healthy group it first waits for calls under way, while the watch still sees whether other ranks die.
  void Close();

  void Begin(const Call& call) {
    if (watch_ && call.kind == Call::Kind::kCollective) watch_->Begin(call.sequence, call.operation);
  }
  void End(const Call& call) {
    if (watch_ && call.kind == Call::Kind::kCollective) watch_->End(call.sequence);
  }

  // Returns whether to call Agree() before each collective.
  bool detail() const { return options_.detail && watch_; }
  absl::Status Agree(const Call& call, const std::string& arguments);

  // Returns the error of a call's own arguments. The group stays usable.
  absl::Status Refuse(const Call& call, const absl::Status& status) const;

  // Makes a call's error, as reported by the backend, the group's failure, or replaces it by the failure that explains
  // it. Returns the status for the call.
  absl::Status Explain(const Call& call, const absl::Status& error);

  // Explain() for an error that names the ranks it is about already.
  absl::Status ExplainNamed(const Call& call, const absl::Status& error);

  // "rank 0: all_reduce #3 of Float [3] on cpu"; the rank is "rank 0 of group \"rows\"" in a sub-group.
  std::string NameOf(const Call& call) const;

 private:
  std::atomic<int64_t>& SequenceOf(Call::Kind kind) {
    return kind == Call::Kind::kCollective ? sequence_ : point_to_point_;
  }

  std::vector<c10::intrusive_ptr<c10d::Backend>> backends() const;
  void AbortBackends();
  void LearnOwnError(const absl::Status& error);
  absl::Status CauseOf(const Call& call, const absl::Status& error);
  absl::Status FirstCause(const std::string& name) const;
  void FailAs(const absl::Status& cause, bool may_be_of_another_rank);
  bool IsOfAnotherRankLocked(const absl::Status& cause) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::shared_ptr<GroupWatch> watch_;
  std::atomic<int64_t> sequence_{0};
  std::atomic<int64_t> point_to_point_{0};
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
  absl::Status own_error_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_GROUP_STATE_H_
