// ProcessGroup's use of its store.

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_state.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store/internal/bounded_call.h"

namespace lockstep::comm {
namespace {

constexpr absl::Duration kPatienceAfterFailure = absl::Seconds(1);
// How often a call under way checks whether the group has failed.
constexpr absl::Duration kInterval = absl::Milliseconds(20);

// How long one request waits at the store. Requests of the rank's other threads wait behind it.
constexpr absl::Duration kFirstPiece = absl::Milliseconds(100);
constexpr absl::Duration kLongestPiece = absl::Milliseconds(500);
// Rank 0 names the missing ranks at its deadline, so the others wait a little longer for that.
constexpr absl::Duration kVerdictPatience = absl::Milliseconds(300);
// The most ranks in one request. A request has at most 64 KiB of keys.
constexpr size_t kMostRanks = 128;

// A barrier over the store: each rank writes its key, rank 0 reads all of them and writes the verdict, and the
// others wait for that. The verdict is empty, or names the ranks that are missing. Rank 0 sends two requests and three
// for each 128 ranks, every other rank four, and each two more whenever a piece of a wait ends. The existence of a key
// proves nothing: in a sealed store, reading it fails if a stranger wrote it. So every key is read.
class RollCall {
 public:
  RollCall(c10d::Store& store, std::string key, int rank, int size, absl::Duration timeout)
      : store_(store),
        key_(std::move(key)),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(absl::Now() + timeout) {}

  absl::Status Answer() {
    store_.set(KeyOf(rank_), "");
    const std::string verdict = rank_ == 0 ? Collect() : AwaitVerdict();
    return verdict.empty() ? absl::OkStatus() : absl::DeadlineExceededError(verdict);
  }

 private:
  std::string KeyOf(int rank) const { return absl::StrCat(key_, "/", rank); }
  std::string VerdictKey() const { return absl::StrCat(key_, "/verdict"); }

  std::vector<std::string> KeysOf(const std::vector<int>& ranks) const {
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(KeyOf(rank));
    return keys;
  }

  // Returns whether all keys exist by `deadline`.
  bool Await(const std::vector<std::string>& keys, absl::Time deadline) {
    for (absl::Duration piece = kFirstPiece;; piece = std::min(2 * piece, kLongestPiece)) {
      const absl::Duration left = std::max(deadline - absl::Now(), absl::Milliseconds(1));
      const absl::Status waited =
          TorchStatus("", [&] { store_.wait(keys, absl::ToChronoMilliseconds(std::min(left, piece))); });
      if (!absl::IsDeadlineExceeded(waited)) ThrowIfError(waited);
      if (waited.ok() || left <= piece) return waited.ok();
    }
  }

  // Finds the ranks from `begin` to before `end` that have not arrived. If all have, this takes two requests for each
  // kMostRanks ranks or fewer.
  void FindMissing(int begin, int end, std::vector<int>& missing) {
    std::vector<int> ranks;
    for (int rank = begin; rank < end; ++rank) ranks.push_back(rank);
    const bool few = ranks.size() <= kMostRanks;
    if (few && store_.check(KeysOf(ranks))) {
      store_.multiGet(KeysOf(ranks));
    } else if (ranks.size() == 1) {
      missing.push_back(begin);
    } else {
      const int middle = begin + (end - begin) / 2;
      FindMissing(begin, middle, missing);
      FindMissing(middle, end, missing);
    }
  }

  std::string JudgeAtTheDeadline() {
    std::vector<int> missing;
    FindMissing(0, size_, missing);
    if (missing.empty()) return "";
    return absl::StrCat("these ranks did not arrive within ", absl::FormatDuration(timeout_), ": ",
                        absl::StrJoin(missing, ", "));
  }

  std::string Collect() {
    bool all = true;
    for (int begin = 0; begin < size_ && all; begin += kMostRanks) {
      std::vector<std::string> keys;
      for (int rank = begin; rank < std::min<int>(size_, begin + kMostRanks); ++rank) keys.push_back(KeyOf(rank));
      all = Await(keys, deadline_);
      if (all) store_.multiGet(keys);
    }
    const std::string verdict = all ? "" : JudgeAtTheDeadline();
    store_.set(VerdictKey(), verdict);
    return verdict;
  }

  std::string AwaitVerdict() {
    if (Await({VerdictKey()}, deadline_ + kVerdictPatience)) return store_.get_to_str(VerdictKey());
    return JudgeAtTheDeadline();  // rank 0 may be missing
  }

  c10d::Store& store_;
  const std::string key_;
  const int rank_;
  const int size_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
};

}  // namespace

std::string ProcessGroup::NextKey(absl::string_view purpose) { return absl::StrCat(purpose, "/", keys_.fetch_add(1)); }

absl::Status ProcessGroup::CallStore(absl::Time deadline, std::function<absl::Status(c10d::Store& store)> call) const {
  if (!store_) return absl::FailedPreconditionError("the group has no store");
  const bool failed_before = state_->failed();
  if (failed_before) deadline = std::min(deadline, absl::Now() + kPatienceAfterFailure);
  internal::BoundedCall bounded([store = store_, call = std::move(call)] { return call(*store); });
  while (!bounded.Await(std::min(deadline, absl::Now() + kInterval))) {
    if (!failed_before && state_->failed()) return state_->failure();
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("the store has not answered in time");
  }
  // If the watch has seen a death, the group's failure names it and the store's error does not.
  if (!bounded.result().ok() && !failed_before && state_->failed()) return state_->failure();
  return bounded.result();
}

absl::Status ProcessGroup::MonitoredBarrier(absl::Duration timeout) {
  if (state_->failed()) return state_->failure();
  internal::Call call = internal::Call::Of("monitored_barrier");
  call.sequence = state_->NextSequence(call.kind);
  if (!store_) return state_->Refuse(call, absl::FailedPreconditionError("the group has no store"));
  state_->Begin(call);
  const auto await = [key = NextKey("monitored_barrier"), rank = rank_, size = size_, timeout](c10d::Store& store) {
    return RollCall(store, key, rank, size, timeout).Answer();
  };
  // RollCall ends before this deadline, and its error names the missing ranks.
  const absl::Status status = CallStore(absl::Now() + timeout + absl::Seconds(1), await);
  if (!status.ok()) return state_->ExplainNamed(call, status);
  state_->End(call);
  return status;
}

}  // namespace lockstep::comm
