#include "lockstep/comm/rendezvous/meeting.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/rendezvous/board.h"
#include "lockstep/comm/rendezvous/collector.h"
#include "lockstep/comm/rendezvous/roster.h"
#include "lockstep/comm/secret/job_secret.h"
#include "lockstep/comm/store/internal/bounded_call.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/launch/report/report.h"

namespace lockstep::comm {
namespace {

using internal::C10dStore;

constexpr absl::Duration kLongestPause = absl::Milliseconds(100);
constexpr absl::Duration kInterruptionPause = absl::Milliseconds(20);  // if an interruption may come
// Strangers may write to the store all the time, so that it never looks quiet.
constexpr absl::Duration kLongestTimeWithoutLook = absl::Seconds(2);
// How long a rank waits for the outcome before it checks whether the collector still lives.
constexpr absl::Duration kFirstPatience = absl::Milliseconds(250);
constexpr absl::Duration kMostPatience = absl::Seconds(1);
// The collector names the missing ranks at the deadline, so the others wait a little longer for that.
constexpr absl::Duration kVerdictPatience = absl::Milliseconds(300);

constexpr size_t kMostMessageBytes = 4096;
constexpr int kMostOtherSecrets = 8;  // that a message names

// Without a free descriptor, LibTorch's store drops a connection silently, and a rank cannot read its own identity. A
// group needs more than this many.
constexpr int kNeededDescriptors = 4;

std::string RandomToken() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

std::string Process(const RankIdentity& identity) {
  return absl::StrCat("host ", identity.host, ", pid ", identity.pid);
}

absl::Status NotJoined(const std::vector<int>& missing) {
  return absl::DeadlineExceededError(absl::StrCat("these ranks have not joined: ", absl::StrJoin(missing, ", ")));
}

// Every rank announces itself. The first one to arrive is the collector: it reads the announcements and publishes one
// outcome, the roster of all ranks. The others wait for that. A rank that fails publishes its failure as the outcome.
class Meeting {
 public:
  Meeting(C10dStore store, int rank, int world_size, std::string facts, std::shared_ptr<WaitingNotice> waiting,
          std::function<absl::Status()> interruption)
      : board_(std::move(store)),
        world_size_(world_size),
        me_{RandomToken(), IdentityOfThisProcess(rank), std::move(facts)},
        waiting_(std::move(waiting)),
        interruption_(std::move(interruption)) {}

  absl::StatusOr<Met> Hold(absl::Time deadline);

 private:
  int rank() const { return me_.identity.rank; }
  absl::Status CheckDescriptors() const;
  absl::Status CheckInterruption() const { return interruption_ ? interruption_() : absl::OkStatus(); }
  absl::Status Join();
  absl::Status CheckWorldSize();
  absl::StatusOr<std::string> Announce();
  absl::Status NumberTaken(const std::string& holder) const;
  absl::StatusOr<Roster> Collect(absl::Time deadline);
  absl::StatusOr<Roster> Publish(const Roster& roster);
  absl::StatusOr<Roster> AwaitOutcome(absl::Time deadline);
  absl::Status NoOutcome();
  absl::StatusOr<std::optional<Roster>> ReadOutcome();
  absl::StatusOr<std::optional<Roster>> Judge(const std::string& outcome);
  void Ignore(absl::string_view why);
  void ReportMissing(const std::vector<int>& missing) const;
  void NotifyRanks(const absl::Status& failure);
  std::string OtherSecrets();
  absl::Status ExplainSecrets(const absl::Status& error);

  Board board_;
  const int world_size_;
  const Member me_;
  const std::shared_ptr<WaitingNotice> waiting_;
  const std::function<absl::Status()> interruption_;
  bool is_collector_ = false;
  RankIdentity collector_;
  bool warned_ = false;  // about an outcome that no rank of this job wrote
};

absl::Status Meeting::CheckDescriptors() const {
  const absl::Status status = CheckFreeDescriptors(kNeededDescriptors);
  return status.ok() ? status : Annotate(status, NameOf(me_.identity));
}

// The first rank to arrive sets the world size, and is the collector.
absl::Status Meeting::CheckWorldSize() {
  const std::string own = absl::StrCat(world_size_, "|", EncodeMember({me_.token, me_.identity, ""}));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, board_.PutFirst(kWorldKey, own));
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('|', 1));
  int size = 0;
  const absl::StatusOr<Member> first =
      text.size() <= kMostMessageBytes ? DecodeMember(parts.back()) : absl::InvalidArgumentError("too long");
  if (!first.ok() || !absl::SimpleAtoi(parts[0], &size)) {
    return absl::InternalError(absl::StrCat("\"", kWorldKey, "\" does not hold a world size, but ", Excerpt(text)));
  }
  is_collector_ = text == own;
  collector_ = first->identity;
  if (size == world_size_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(me_.identity), " was given world size ", world_size_, ", but ",
                                                 NameOf(collector_), " world size ", size));
}

// Ranks whose announcement cannot be read with this rank's secret, or without one.
std::string Meeting::OtherSecrets() {
  std::vector<std::string> others;
  for (int other = 0; other < world_size_ && others.size() < kMostOtherSecrets; ++other) {
    if (other == rank() || !board_.Has({MemberKey(other)})) continue;
    if (absl::IsPermissionDenied(board_.ReadMember(other).status())) others.push_back(absl::StrCat("rank ", other));
  }
  return absl::StrJoin(others, ", ");
}

// Waits a moment for the announcement of a rank with another secret. It follows the value that could not be read.
absl::Status Meeting::ExplainSecrets(const absl::Status& error) {
  const absl::Time due = absl::Now() + 3 * kLongestPause;
  std::string others = OtherSecrets();
  while (others.empty() && absl::Now() < due) {
    absl::SleepFor(kLongestPause / 10);
    others = OtherSecrets();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      NameOf(me_.identity), ": ", error.message(), "; ",
      others.empty() ? "a rank has another job secret" : absl::StrCat("this rank has another job secret than ", others),
      ", or a stranger has reached the store: ", kJobSecretVariable,
      " must be the same on every rank, or set on none"));
}

absl::Status Meeting::NumberTaken(const std::string& holder) const {
  const absl::StatusOr<Member> other = DecodeMember(holder);
  if (!other.ok()) {
    return absl::InternalError(
        absl::StrCat("\"", MemberKey(rank()), "\" does not hold a rank's announcement, but ", Excerpt(holder)));
  }
  const std::string fate = FateOf(other->identity);
  if (!fate.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the ", board_.place(), " still holds ", NameOf(other->identity),
                                                      " of an earlier run, which ", fate,
                                                      ": each run needs a new one"));
  }
  return absl::AlreadyExistsError(absl::StrCat("rank ", rank(), ": two processes were given this rank: ",
                                               Process(other->identity), " and ", Process(me_.identity)));
}

// Writes this rank's announcement. If another process has written one for this rank, returns that.
absl::StatusOr<std::string> Meeting::Announce() {
  const std::string own = EncodeMember(me_);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string holder, board_.PutFirst(MemberKey(rank()), own));
  return holder == own ? "" : holder;
}

absl::Status Meeting::Join() {
  LOCKSTEP_RETURN_IF_ERROR(CheckDescriptors());
  const absl::Status world = CheckWorldSize();
  if (absl::IsPermissionDenied(world)) {
    // It shows ranks with another secret that this rank does not have theirs.
    Announce().IgnoreError();
    return world;
  }
  LOCKSTEP_RETURN_IF_ERROR(world);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string holder, Announce());
  return holder.empty() ? absl::OkStatus() : NumberTaken(holder);
}

void Meeting::ReportMissing(const std::vector<int>& missing) const {
  if (!waiting_) return;
  const auto who = [&] {
    return absl::StrCat(DescribeRanks(missing, world_size_), " to come to the ", board_.place());
  };
  waiting_->Tick(who, ": have they started, with the same address and world size?");
}

// If all ranks are Lockstep ranks and come soon, this takes three requests for each 128 ranks. Looking for individual
// ranks takes one or two requests for each that is missing. So this rank does it only when nobody comes, and for at
// most a tenth of the time.
absl::StatusOr<Roster> Meeting::Collect(absl::Time deadline) {
  Collector collector(&board_, me_.identity, world_size_);
  absl::Time next_look = absl::Now() + kLongestPause;
  absl::Time latest_look = absl::Now() + kLongestTimeWithoutLook;
  const absl::Duration pause = interruption_ ? kInterruptionPause : kLongestPause;
  while (!collector.complete()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckInterruption());
    LOCKSTEP_ASSIGN_OR_RETURN(const bool came, collector.AwaitMore(std::min(pause, deadline - absl::Now())));
    if (came) continue;
    if (board_.Has({kOutcomeKey})) LOCKSTEP_RETURN_IF_ERROR(ReadOutcome().status());
    const absl::Time now = absl::Now();
    const bool someone_comes = !collector.IsQuiet() && now < latest_look;
    if (now < deadline && (now < next_look || someone_comes)) continue;
    LOCKSTEP_RETURN_IF_ERROR(CheckDescriptors());
    LOCKSTEP_RETURN_IF_ERROR(collector.Look());
    if (collector.complete()) break;
    if (now >= deadline) return NotJoined(collector.missing());
    ReportMissing(collector.missing());
    next_look = absl::Now() + std::max(kLongestPause, 10 * (absl::Now() - now));
    latest_look = std::max(next_look, absl::Now() + kLongestTimeWithoutLook);
  }
  LOCKSTEP_RETURN_IF_ERROR(collector.CheckAlive());
  return Publish(collector.roster());
}

// Takes the place of an outcome that no rank of this meeting wrote, but not of another rank's failure.
absl::StatusOr<Roster> Meeting::Publish(const Roster& roster) {
  const std::string outcome = absl::StrCat(static_cast<int>(absl::StatusCode::kOk), "|", EncodeRoster(roster));
  const absl::StatusOr<std::string> first = board_.PutFirst(kOutcomeKey, outcome);
  if (first.ok() && *first != outcome) LOCKSTEP_RETURN_IF_ERROR(Judge(*first).status());
  if (!first.ok() || *first != outcome) board_.Put(kOutcomeKey, outcome);
  return roster;
}

absl::StatusOr<Roster> Meeting::AwaitOutcome(absl::Time deadline) {
  const absl::Time end = deadline + kVerdictPatience;
  absl::Duration patience = kFirstPatience;
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(CheckInterruption());
    if (interruption_) patience = kInterruptionPause;
    // After a wait that timed out, another request finds a server that is stopped.
    if (board_.Await({kOutcomeKey}, std::min(patience, end - absl::Now())) || board_.Has({kOutcomeKey})) {
      LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Roster> roster, ReadOutcome());
      if (roster) return *std::move(roster);
      absl::SleepFor(kLongestPause);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckDescriptors());
    LOCKSTEP_RETURN_IF_ERROR(CheckLives(collector_, me_.identity, board_.place()));
    if (absl::Now() >= end) return NoOutcome();
    patience = std::min(2 * patience, kMostPatience);
  }
}

// The error at the deadline of a rank that is not the collector, whose deadline is later, or which is lost.
absl::Status Meeting::NoOutcome() {
  Collector collector(&board_, me_.identity, world_size_);
  LOCKSTEP_RETURN_IF_ERROR(collector.Look());
  if (!collector.complete()) LOCKSTEP_RETURN_IF_ERROR(collector.Look());
  if (!collector.complete()) return NotJoined(collector.missing());
  return absl::DeadlineExceededError(
      absl::StrCat("all ranks have joined, but ", NameOf(collector_), " has not published their list"));
}

void Meeting::Ignore(absl::string_view why) {
  LOG_IF(WARNING, !warned_) << NameOf(me_.identity) << ": ignored while the ranks meet: " << why;
  warned_ = true;
}

void Meeting::NotifyRanks(const absl::Status& failure) {
  const std::string text =
      absl::StrCat(static_cast<int>(failure.code()), "|", failure.message().substr(0, kMostMessageBytes));
  if (absl::IsPermissionDenied(board_.PutFirst(kOutcomeKey, text).status())) board_.Put(kOutcomeKey, text);
}

// nullopt if no rank of this job wrote the outcome.
absl::StatusOr<std::optional<Roster>> Meeting::ReadOutcome() {
  const absl::StatusOr<std::string> outcome = board_.Read(kOutcomeKey);
  if (outcome.ok()) return Judge(*outcome);
  if (!absl::IsPermissionDenied(outcome.status())) return outcome.status();
  Ignore(outcome.status().message());
  return std::nullopt;
}

// If another rank reports missing ranks, this rank returns the same error as if the deadline had passed here first. Any
// other failure is returned as the other rank's.
absl::StatusOr<std::optional<Roster>> Meeting::Judge(const std::string& outcome) {
  const std::pair<absl::string_view, absl::string_view> code_and_text =
      absl::StrSplit(outcome, absl::MaxSplits('|', 1));
  int code = -1;
  if (absl::SimpleAtoi(code_and_text.first, &code) && code == static_cast<int>(absl::StatusCode::kOk)) {
    absl::StatusOr<Roster> roster = DecodeRoster(code_and_text.second);
    if (!roster.ok()) {
      return absl::InternalError(
          absl::StrCat("\"", kOutcomeKey, "\" does not hold the ranks' list, but ", Excerpt(outcome)));
    }
    const bool names_me =
        static_cast<int>(roster->size()) == world_size_ && (*roster)[rank()] && (*roster)[rank()]->token == me_.token;
    if (names_me) return *std::move(roster);
    Ignore(absl::StrCat("\"", kOutcomeKey, "\" is of an earlier run"));
    return std::nullopt;
  }
  const absl::string_view message = code_and_text.second.substr(0, kMostMessageBytes);
  if (code == static_cast<int>(absl::StatusCode::kDeadlineExceeded)) return absl::DeadlineExceededError(message);
  const absl::Status failure = absl::AbortedError(message);
  launch::RecordErrorOfAnotherRank(failure);
  return failure;
}

Met ToMet(Roster roster) {
  Met met;
  met.all_lockstep = std::all_of(roster.begin(), roster.end(), [](const auto& member) { return member.has_value(); });
  for (size_t rank = 0; met.all_lockstep && rank < roster.size(); ++rank) {
    absl::StrAppend(&met.occasion, roster[rank]->token, ",");
    met.ranks.push_back(std::move(roster[rank]->identity));
    met.facts.push_back(std::move(roster[rank]->facts));
  }
  return met;
}

absl::StatusOr<Met> Meeting::Hold(absl::Time deadline) {
  absl::StatusOr<Roster> roster = absl::UnknownError("not met");
  absl::Status status = Join();
  if (status.ok()) {
    roster = is_collector_ ? Collect(deadline) : AwaitOutcome(deadline);
    status = roster.status();
  }
  if (status.ok()) return ToMet(*std::move(roster));
  LOCKSTEP_RETURN_IF_ERROR(CheckInterruption());  // of which the others know
  if (absl::IsPermissionDenied(status)) status = ExplainSecrets(status);
  // Reported to the others before this rank fails. The store ends with rank 0, which serves it, so the others get time
  // to read the reason there.
  NotifyRanks(status);
  if (rank() == 0) absl::SleepFor(3 * kLongestPause);
  return status;
}

// The state of the store after a broken connection.
absl::Status ExplainStore(const absl::Status& error, const C10dStore& store) {
  const std::string place = internal::Describe(store);
  if (error.code() == absl::StatusCode::kUnavailable) {
    return absl::UnavailableError(absl::StrCat("the ", place, " went away while the ranks met: ", error.message()));
  }
  return Annotate(error, absl::StrCat("meeting the other ranks at the ", place));
}

}  // namespace

absl::StatusOr<Met> MeetAllRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                 const std::string& facts, absl::Time deadline,
                                 const std::shared_ptr<WaitingNotice>& waiting,
                                 const std::function<absl::Status()>& interruption) {
  const auto result = std::make_shared<absl::StatusOr<Met>>(absl::UnknownError("not met"));
  const absl::Status spoken = internal::CallByDeadline(
      [=] {
        Meeting meeting(store, rank, world_size, facts, waiting, interruption);
        *result = meeting.Hold(deadline);
        return absl::OkStatus();
      },
      // Time for a meeting that fails at the deadline to build its error.
      std::max(deadline, absl::Now()) + absl::Seconds(1));
  if (!spoken.ok() && interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
  if (!spoken.ok()) return ExplainStore(spoken, store);
  return std::move(*result);
}

}  // namespace lockstep::comm
