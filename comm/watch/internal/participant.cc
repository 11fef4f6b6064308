#include "lockstep/comm/watch/internal/participant.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/watch/internal/wording.h"

namespace lockstep::comm::internal {
namespace {

// How often a rank checks whether it needs a rank that has left. All ranks do so, so the ranks of a large group do it
// less often: at most about 3,300 times a second together.
constexpr auto kLeaverInterval = std::chrono::milliseconds(20);
constexpr auto kLeaverIntervalOfRank = std::chrono::microseconds(300);
// How often a rank that waits for the others asks whether it may go on waiting.
constexpr auto kInterruptionInterval = std::chrono::milliseconds(20);
// How long a rank waits for the hub before it decides alone: longer than the hub's own patience with the others.
constexpr auto kExplainPatience = std::chrono::milliseconds(1300);
constexpr auto kTimeoutPatience = std::chrono::milliseconds(1400);
constexpr auto kAbortPatience = std::chrono::milliseconds(1000);

Clock::time_point ToClock(absl::Time deadline) {
  const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(24 * 365));
  return Clock::now() + absl::ToChronoMicroseconds(left);
}

absl::StatusCode ErrorCode(int code) {
  return code == 0 ? absl::StatusCode::kUnknown : static_cast<absl::StatusCode>(code);
}

}  // namespace

Participant::Participant(int rank, std::vector<RankIdentity> ranks, int hub,
                         std::function<void(const absl::Status&)> on_failure,
                         std::function<void(const Frame&)> on_stall, Clock::duration stall_after,
                         Clock::duration first_question)
    : rank_(rank),
      ranks_(std::move(ranks)),
      hub_(hub),
      on_failure_(std::move(on_failure)),
      on_stall_(std::move(on_stall)),
      stall_after_(stall_after),
      stall_clock_(stall_after, first_question) {}

void Participant::SetCause(const Lock&, Cause cause) {
  if (cause_) return;
  cause_ = std::move(cause);
  changed_.notify_all();
}

void Participant::FallBackAt(const Lock& lock, Fallback fallback) {
  if (fallback_) return;
  fallback_ = std::move(fallback);
  if (hub_left_) FallBackWithoutHub(lock);
}

void Participant::FallBackWithoutHub(const Lock&) {
  fallback_->due = Clock::time_point();  // no rank to wait for
  if (fallback_->blames_hub) fallback_->cause = LeftCause(*leaver_);
}

Participant::Cause Participant::LeftCause(const Frame& farewell) const {
  return {absl::StatusCode::kUnavailable, LeftText(ranks_[farewell.rank], farewell.sequence, farewell.text)};
}

bool Participant::FallBackIfDue(const Lock& lock, Clock::time_point now) {
  if (cause_ || !fallback_ || now < fallback_->due) return false;
  SetCause(lock, fallback_->cause);
  return true;
}

void Participant::RecordFarewell(const Lock& lock, const Frame& frame) {
  if (frame.rank < 0 || frame.rank >= static_cast<int>(ranks_.size())) return;
  if (!leaver_ || frame.sequence < leaver_->sequence) leaver_ = frame;
  if (frame.rank != hub_) return;
  hub_left_ = true;
  if (fallback_) FallBackWithoutHub(lock);
  changed_.notify_all();
}

void Participant::Deliver(const Frame& frame) {
  std::optional<Frame> answer;
  {
    const Lock lock(mutex_);
    switch (frame.type) {
      case Frame::Type::kWelcome:
        welcome_ = true;
        changed_.notify_all();
        break;
      case Frame::Type::kCause:
        SetCause(lock, frame.rank == rank_ && own_ ? *own_ : Cause{ErrorCode(frame.code), frame.text});
        break;
      case Frame::Type::kAgreed:
        agreed_.insert(frame.sequence);
        changed_.notify_all();
        break;
      case Frame::Type::kFarewell:
        RecordFarewell(lock, frame);
        break;
      case Frame::Type::kAsk:
        answer = AnswerTo(frame);
        break;
      case Frame::Type::kAskFate:
        if (frame.rank < 0 || frame.rank >= static_cast<int>(ranks_.size())) break;
        answer = Frame{Frame::Type::kFate, frame.rank, 0, -1, 0, FateOf(ranks_[frame.rank])};
        break;
      default:  // a rank's own frames: the hub sends none of them
        break;
    }
  }
  if (answer) send_(*answer);
  if (frame.type == Frame::Type::kStall && on_stall_ && std::chrono::milliseconds(frame.value) >= stall_after_)
    on_stall_(frame);
  Report();
}

bool Participant::NeedsLeaver(const Lock&) const {
  return leaver_ && std::max(begun_.load(std::memory_order_relaxed), awaited_) > leaver_->sequence;
}

Clock::time_point Participant::Tick(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  std::optional<Cause> decided;
  std::optional<Clock::duration> lasts;
  {
    const Lock lock(mutex_);
    if (!cause_ && welcome_) {
      lasts = stall_clock_.Look(begun_.load(std::memory_order_relaxed), ended_.load(std::memory_order_relaxed), now);
      next = now + stall_clock_.interval();
    }
    if (!cause_ && !told_of_leaver_ && NeedsLeaver(lock)) {
      told_of_leaver_ = true;
      decided = LeftCause(*leaver_);
      FallBackAt(lock, {now + kAbortPatience, *decided});
    }
    if (FallBackIfDue(lock, now)) decided = cause_;
    if (!cause_ && leaver_)
      next = std::min(next, now + std::max<Clock::duration>(kLeaverInterval, ranks_.size() * kLeaverIntervalOfRank));
    if (!cause_ && fallback_) next = std::min(next, fallback_->due);
  }
  if (lasts) {
    Frame call = Farewell();
    call.type = Frame::Type::kLong;
    call.value = std::chrono::duration_cast<std::chrono::milliseconds>(*lasts).count();
    send_(call);
  }
  // Reports it to the hub too, even if the hub is stopped and reads it late.
  if (decided) {
    send_({Frame::Type::kDecide, -1, static_cast<int32_t>(decided->code), -1, 0, decided->text});
  }
  Report();
  return next;
}

void Participant::Report() {
  {
    const Lock lock(mutex_);
    if (!cause_ || reported_) return;
    reported_ = true;
  }
  if (on_failure_) on_failure_(failure());
}

absl::Status Participant::AwaitCause(Lock& lock) {
  while (!cause_) {
    // A little later than the watch's thread, which does the same.
    const auto due = fallback_->due + (hub_left_ ? Clock::duration::zero() : std::chrono::milliseconds(100));
    if (changed_.wait_until(lock, due) == std::cv_status::timeout) FallBackIfDue(lock, Clock::now());
  }
  return cause_->ToStatus();
}

absl::Status Participant::Inquire(const Frame& frame, Clock::duration patience, Cause fallback,
                                  const absl::Status* own) {
  {
    const Lock lock(mutex_);
    if (cause_) return cause_->ToStatus();
    if (own && !own_) own_ = Cause{own->code(), std::string(own->message())};
    FallBackAt(lock, {Clock::now() + patience, std::move(fallback), /*blames_hub=*/true});
  }
  send_(frame);
  Lock lock(mutex_);
  return AwaitCause(lock);
}

absl::Status Participant::Explain(const absl::Status& error) {
  if (error.ok()) return error;
  const std::string message(error.message());
  Frame trouble = Farewell();
  trouble.type = Frame::Type::kTrouble;
  trouble.code = static_cast<int32_t>(error.code());
  trouble.text = message;
  const std::string silent = absl::StrCat(SilentText(ranks_[hub_]), "; ", FailedText(ranks_[rank_], message));
  return Inquire(trouble, kExplainPatience, {absl::StatusCode::kUnavailable, silent}, &error);
}

absl::Status Participant::ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout) {
  const Frame question{Frame::Type::kTimeout, rank_, 0, sequence, absl::ToInt64Milliseconds(timeout), operation};
  const std::string silent = TimeoutText(sequence, operation, timeout, {SilentText(ranks_[hub_])});
  return Inquire(question, kTimeoutPatience, {absl::StatusCode::kDeadlineExceeded, silent}, nullptr);
}

absl::Status Participant::Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline) {
  const absl::Time start = absl::Now();
  {
    const Lock lock(mutex_);
    if (cause_) return cause_->ToStatus();
    awaited_ = std::max(awaited_, sequence);
  }
  send_({Frame::Type::kAgree, rank_, 0, sequence, 0, fingerprint});
  Lock lock(mutex_);
  const auto done = [&] { return cause_ || agreed_.count(sequence) != 0; };
  if (changed_.wait_until(lock, ToClock(deadline), done)) {
    if (agreed_.erase(sequence)) return absl::OkStatus();
    return cause_->ToStatus();
  }
  lock.unlock();
  const Frame last = Farewell();
  return ExplainTimeout(sequence, last.sequence == sequence ? last.text.c_str() : "call", deadline - start);
}

void Participant::Abort(const absl::Status& cause) {
  if (cause.ok()) return;
  const Cause own{cause.code(), std::string(cause.message())};
  {
    const Lock lock(mutex_);
    if (cause_) return;
    if (!own_) own_ = own;
    FallBackAt(lock, {Clock::now() + kAbortPatience, own});
  }
  send_({Frame::Type::kDecide, rank_, static_cast<int32_t>(absl::StatusCode::kAborted), -1, 0,
         FailedText(ranks_[rank_], own.text)});
}

absl::Status Participant::failure() {
  const Lock lock(mutex_);
  return cause_ ? cause_->ToStatus() : absl::OkStatus();
}

absl::Status Participant::AwaitWelcome(const std::function<absl::Status()>& interruption) {
  Lock lock(mutex_);
  const auto has_come = [&] { return welcome_ || cause_; };
  while (interruption && !changed_.wait_for(lock, kInterruptionInterval, has_come)) {
    lock.unlock();
    LOCKSTEP_RETURN_IF_ERROR(interruption());
    lock.lock();
  }
  changed_.wait(lock, has_come);
  return welcome_ ? absl::OkStatus() : cause_->ToStatus();
}

Frame Participant::Farewell() const {
  const int64_t last = begun_.load(std::memory_order_acquire);
  return {Frame::Type::kFarewell, rank_, 0, last, 0, OperationOf(last)};
}

// The name of the call that was asked about, or else of the last one, if that was an earlier one.
Frame Participant::AnswerTo(const Frame& question) const {
  Frame answer = Farewell();
  answer.type = Frame::Type::kHere;
  answer.code = ended_.load(std::memory_order_relaxed) < answer.sequence ? 1 : 0;
  answer.value = question.value;
  if (answer.sequence > question.sequence) answer.text = OperationOf(question.sequence);
  return answer;
}

// Empty if the call was too long ago.
std::string Participant::OperationOf(int64_t sequence) const {
  if (sequence < 0) return "";
  const char* const operation = operations_[sequence % kOperations].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  // Begin() writes a name before the number, so the name may be of one call more than the number says.
  const bool is_old = begun_.load(std::memory_order_relaxed) + 1 >= sequence + kOperations;
  return is_old || !operation ? "" : operation;
}

bool Participant::hub_left() {
  const Lock lock(mutex_);
  return hub_left_;
}

}  // namespace lockstep::comm::internal
