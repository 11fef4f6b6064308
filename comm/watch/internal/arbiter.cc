#include "lockstep/comm/watch/internal/arbiter.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/watch/internal/wording.h"

namespace lockstep::comm::internal {
namespace {

// How often the arbiter checks a process that sent nothing.
constexpr auto kFateInterval = std::chrono::milliseconds(5);
constexpr auto kMissingInterval = std::chrono::milliseconds(100);
// Ten times as long as it takes to read a process's file (40 us on 2 cores that many processes share).
constexpr auto kMissingIntervalOfRank = std::chrono::microseconds(400);

// Returns whether a rank's error says that another process did not answer. Such an error may follow from another
// rank's, and arrive earlier.
bool IsAboutAnother(const Frame& trouble) {
  const auto code = static_cast<absl::StatusCode>(trouble.code);
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

Arbiter::Arbiter(std::vector<RankIdentity> ranks, int hub, Clock::time_point joining_deadline,
                 std::function<void(int, const Frame&)> send, std::function<std::string(const RankIdentity&)> fate_of)
    : hub_(hub), joining_deadline_(joining_deadline), send_(std::move(send)), fate_of_(std::move(fate_of)) {
  for (RankIdentity& identity : ranks) {
    members_.emplace_back();
    members_.back().identity = std::move(identity);
  }
}

bool Arbiter::Join(int rank) {
  if (rank < 0 || rank >= static_cast<int>(members_.size()) || members_[rank].joined) return false;
  members_[rank].joined = true;
  ++joined_;
  if (cause_) send_(rank, *cause_);
  if (complete()) SendAll({Frame::Type::kWelcome});
  return true;
}

void Arbiter::SendAll(const Frame& frame) {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].there()) send_(static_cast<int>(rank), frame);
  }
}

void Arbiter::Decide(absl::StatusCode code, const std::string& text, int origin) {
  if (cause_) return;
  cause_ = Frame{Frame::Type::kCause, origin, static_cast<int32_t>(code), -1, 0, text};
  SendAll(*cause_);
}

void Arbiter::Receive(int rank, const Frame& frame, Clock::time_point now) {
  switch (frame.type) {
    case Frame::Type::kFarewell:
      return Leave(rank, frame);
    case Frame::Type::kTrouble:
      return RecordTrouble(rank, frame, now);
    case Frame::Type::kTimeout:
      return Ask(frame, now);
    case Frame::Type::kLong:
      return RecordLong(frame, now);
    case Frame::Type::kHere:
      return RecordAnswer(rank, frame);
    case Frame::Type::kAgree:
      return RecordFingerprint(rank, frame, now);
    case Frame::Type::kDecide:
      return Decide(static_cast<absl::StatusCode>(frame.code), frame.text, frame.rank);
    case Frame::Type::kFate:
      if (frame.rank >= 0 && frame.rank < static_cast<int>(members_.size()) && !members_[frame.rank].lost.empty()) {
        const Member& lost = members_[frame.rank];
        if (!frame.text.empty()) Decide(absl::StatusCode::kUnavailable, LostText(lost.identity, frame.text, ""));
      }
      return;
    default:  // the hub's own frames: no rank sends them
      return;
  }
}

void Arbiter::Leave(int rank, const Frame& farewell) {
  if (members_[rank].farewell) return;
  Frame told = farewell;
  told.rank = rank;
  members_[rank].farewell = told;
  // Only the farewell with the earliest last call can explain an error, so a rank needs no other. If all ranks leave
  // after the same call, each of them gets one farewell and the hub's, not one from every other rank.
  const bool is_earliest = !earliest_leaver_ || told.sequence < members_[*earliest_leaver_].farewell->sequence;
  if (is_earliest) earliest_leaver_ = rank;
  if (is_earliest || rank == hub_) SendAll(told);
}

void Arbiter::Lose(int rank, const std::string& how, Clock::time_point now) {
  Member& member = members_[rank];
  if (member.farewell || !member.lost.empty()) return;
  member.lost = how;
  member.lost_due = now + kFatePatience;
  ++lost_;
}

const Arbiter::Member* Arbiter::LeaverBefore(int64_t sequence) const {
  for (const Member& member : members_) {
    if (member.farewell && member.farewell->sequence < sequence) return &member;
  }
  return nullptr;
}

void Arbiter::RecordTrouble(int rank, const Frame& frame, Clock::time_point now) {
  if (trouble_ && (IsAboutAnother(frame) || !IsAboutAnother(*trouble_))) return;
  const bool is_first = !trouble_;
  trouble_ = frame;
  trouble_->rank = rank;
  if (!is_first) return;
  const bool certain = members_.size() == 1 || LeaverBefore(frame.sequence);
  trouble_due_ = certain ? now : now + kTroublePatience;
}

void Arbiter::TickTrouble(Clock::time_point now) {
  if (!trouble_ || now < trouble_due_) return;
  const Member* leaver = LeaverBefore(trouble_->sequence);
  // If a connection breaks when a rank leaves, it is most likely the leaver's, whatever its last call was.
  if (!leaver) leaver = LeaverBefore(INT64_MAX);
  if (leaver) {
    const Frame& last = *leaver->farewell;
    return Decide(absl::StatusCode::kUnavailable, LeftText(leaver->identity, last.sequence, last.text));
  }
  Decide(absl::StatusCode::kAborted, FailedText(members_[trouble_->rank].identity, trouble_->text), trouble_->rank);
}

// A timeout is more urgent than a call that lasts long.
void Arbiter::Ask(const Frame& question, Clock::time_point now) {
  if (cause_ || (inquiry_ && inquiry_->question.type == Frame::Type::kTimeout)) return;
  for (Member& member : members_) member.answer.reset();
  inquiry_ = Inquiry{question, now + kInquiryPatience};
  Frame ask{Frame::Type::kAsk};
  ask.value = ++inquiries_;
  ask.sequence = question.sequence;
  SendAll(ask);
}

void Arbiter::RecordLong(const Frame& frame, Clock::time_point now) {
  if (inquiry_ || now < quiet_until_) return;
  quiet_until_ = now + std::min<Clock::duration>(kStallPause, std::chrono::milliseconds(frame.value) / 4);
  Ask(frame, now);
}

void Arbiter::RecordAnswer(int rank, const Frame& frame) {
  if (!inquiry_ || frame.value != inquiries_) return;
  members_[rank].answer = frame;
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const Member& member) { return member.answer || !member.there(); });
  if (all) ConcludeInquiry();
}

void Arbiter::ConcludeInquiry() {
  const Frame question = inquiry_->question;
  std::vector<std::string> reasons;
  std::map<std::string, std::vector<int>> operations;  // the ranks that have begun the call, by what they call
  int first = -1;
  for (const Member& member : members_) {
    const bool has_begun = member.answer && member.answer->sequence >= question.sequence;
    if (has_begun && !member.answer->text.empty()) operations[member.answer->text].push_back(member.identity.rank);
    if (member.farewell && member.farewell->sequence < question.sequence) {
      reasons.push_back(LeftText(member.identity, member.farewell->sequence, member.farewell->text));
    } else if (!member.farewell && !member.answer) {
      reasons.push_back(SilentText(member.identity));
    } else if (member.answer && member.answer->sequence < question.sequence) {
      reasons.push_back(
          LateText(member.identity, member.answer->sequence, member.answer->text, member.answer->code == 1));
    }
    if (first < 0 && !reasons.empty()) first = member.identity.rank;
  }
  if (operations.size() > 1) {
    inquiry_.reset();
    return Decide(absl::StatusCode::kInvalidArgument, MismatchText(question.sequence, operations, /*silent=*/{}));
  }
  const absl::Duration time = absl::Milliseconds(question.value);
  if (question.type == Frame::Type::kTimeout) {
    Decide(absl::StatusCode::kDeadlineExceeded, TimeoutText(question.sequence, question.text, time, reasons));
  } else {
    SendAll({Frame::Type::kStall, first, 0, question.sequence, question.value,
             StallText(question.sequence, question.text, time, reasons)});
  }
  inquiry_.reset();
}

void Arbiter::RecordFingerprint(int rank, const Frame& frame, Clock::time_point now) {
  Agreement& agreement = agreements_[frame.sequence];
  agreement.ranks[frame.text].push_back(rank);
  ++agreement.said;
  const bool same = agreement.ranks.size() == 1;
  if (!same) agreement.mismatch_due = std::min(agreement.mismatch_due, now + kMismatchPatience);
  if (agreement.said < members_.size()) return;
  if (!same) return ConcludeMismatch(frame.sequence, agreement);
  Frame agreed{Frame::Type::kAgreed};
  agreed.sequence = frame.sequence;
  SendAll(agreed);
  agreements_.erase(frame.sequence);
}

void Arbiter::ConcludeMismatch(int64_t sequence, const Agreement& agreement) {
  std::vector<bool> said(members_.size());
  for (const auto& entry : agreement.ranks) {
    for (const int rank : entry.second) said[rank] = true;
  }
  std::vector<int> silent;
  for (size_t rank = 0; rank < said.size(); ++rank) {
    if (!said[rank]) silent.push_back(static_cast<int>(rank));
  }
  Decide(absl::StatusCode::kInvalidArgument, MismatchText(sequence, agreement.ranks, silent));
}

Clock::time_point Arbiter::Tick(Clock::time_point now) {
  if (cause_) return Clock::time_point::max();
  Clock::time_point next = std::min(TickJoining(now), TickLost(now));
  if (inquiry_ && now >= inquiry_->due) ConcludeInquiry();
  for (const auto& entry : agreements_) {
    if (now >= entry.second.mismatch_due) ConcludeMismatch(entry.first, entry.second);
    next = std::min(next, entry.second.mismatch_due);
  }
  if (inquiry_) return std::min(next, inquiry_->due);
  // A death or a timeout explains more than an error, so inquiries into them come first.
  if (lost_ == 0) TickTrouble(now);
  if (trouble_) next = std::min(next, std::max(trouble_due_, now + kFateInterval));
  return cause_ ? Clock::time_point::max() : next;
}

bool Arbiter::ExpectsMore() const {
  return std::any_of(members_.begin(), members_.end(),
                     [this](const Member& member) { return !member.joined && fate_of_(member.identity).empty(); });
}

std::string Arbiter::FateOfMissing() const {
  for (const Member& member : members_) {
    const std::string fate = member.joined ? "" : fate_of_(member.identity);
    if (!fate.empty()) return LostText(member.identity, fate, "");
  }
  return "";
}

// At intervals only: it reads a file for each of them, and each rank that joins causes a tick.
void Arbiter::LookForDeadAmongMissing(Clock::time_point now) {
  const std::string dead = FateOfMissing();
  if (!dead.empty()) Decide(absl::StatusCode::kUnavailable, dead);
  next_look_ = now + std::max<Clock::duration>(kMissingInterval, (members_.size() - joined_) * kMissingIntervalOfRank);
}

Clock::time_point Arbiter::TickJoining(Clock::time_point now) {
  if (complete()) return Clock::time_point::max();
  if (now >= next_look_) LookForDeadAmongMissing(now);
  if (now >= joining_deadline_) {
    std::vector<RankIdentity> missing;
    for (const Member& member : members_) {
      if (!member.joined) missing.push_back(member.identity);
    }
    Decide(absl::StatusCode::kDeadlineExceeded, MissingText(missing));
  }
  return std::min(next_look_, joining_deadline_);
}

std::string Arbiter::FateOfLost(const Member& member) {
  const RankIdentity& hub = members_[hub_].identity;
  if (SeeTheSameProcesses(hub, member.identity)) return fate_of_(member.identity);
  // A rank on the same host sees more than the hub does. It answers with kFate.
  for (const Member& other : members_) {
    if (!other.there() || !SeeTheSameProcesses(other.identity, member.identity)) continue;
    send_(other.identity.rank, {Frame::Type::kAskFate, member.identity.rank});
    break;
  }
  return "";
}

Clock::time_point Arbiter::TickLost(Clock::time_point now) {
  if (lost_ == 0) return Clock::time_point::max();
  for (const Member& member : members_) {
    if (member.lost.empty()) continue;
    const std::string fate = FateOfLost(member);
    if (!fate.empty() || now >= member.lost_due) {
      Decide(absl::StatusCode::kUnavailable, LostText(member.identity, fate, member.lost));
    }
  }
  return now + kFateInterval;
}

}  // namespace lockstep::comm::internal
