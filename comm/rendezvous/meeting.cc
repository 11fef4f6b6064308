#include "lockstep/comm/rendezvous/meeting.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/secret/job_secret.h"
#include "lockstep/comm/store/internal/bounded_call.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/tools/launch/report.h"

namespace lockstep::comm {
namespace {

using internal::C10dStore;

constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

// No rank writes more than this. A stranger may, if the store is not sealed.
constexpr size_t kMostMemberBytes = size_t{64} << 10;
constexpr size_t kMostMessageBytes = 4096;
constexpr size_t kMostExcerptBytes = 100;

// Without a free descriptor, LibTorch's store drops a connection silently, and a rank cannot read its own identity. A
// group needs more than this many.
constexpr int kNeededDescriptors = 4;

constexpr char kWorldKey[] = "lockstep/world";        // "<size>|rank 1 (host a, pid 1)" of the first rank to arrive
constexpr char kArrivedKey[] = "lockstep/arrived";    // the number of ranks that have written their member key
constexpr char kFailureKey[] = "lockstep/failure";    // "<code>|<message>" of the first to fail
constexpr char kMemberPrefix[] = "lockstep/member/";  // "<token>\n<identity>\n<facts>"

// The key under which a rank of PyTorch 2.11's init_process_group writes the address of its Gloo connections, before it
// waits for the others. A Lockstep rank writes it too, but after its member key.
std::string PythonKey(int rank) { return absl::StrCat("default_pg/0//cpu//0/", rank); }

std::string MemberKey(int rank) { return absl::StrCat(kMemberPrefix, rank); }

// Distinguishes processes with the same identity: threads of one process that each act as a rank.
std::string Token() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

struct Member {
  std::string token;
  RankIdentity identity;
  std::string facts;
};

// For messages: the store may hold any bytes.
std::string Excerpt(absl::string_view text) {
  const std::string start = absl::CHexEscape(text.substr(0, kMostExcerptBytes));
  if (text.size() <= kMostExcerptBytes) return absl::StrCat("\"", start, "\"");
  return absl::StrCat("\"", start, "...\" (", text.size(), " bytes)");
}

absl::StatusOr<Member> ParseMember(int rank, absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  const auto identity =
      parts.size() == 3 && text.size() <= kMostMemberBytes ? DecodeIdentity(parts[1]) : absl::InvalidArgumentError("");
  if (identity.ok()) return Member{std::string(parts[0]), *identity, std::string(parts[2])};
  return absl::InternalError(
      absl::StrCat("\"", MemberKey(rank), "\" does not hold a rank's announcement, but ", Excerpt(text)));
}

std::string Process(const RankIdentity& identity) {
  return absl::StrCat("host ", identity.host, ", pid ", identity.pid);
}

class Meeting {
 public:
  Meeting(C10dStore store, int rank, int world_size, std::string facts, std::shared_ptr<WaitingNotice> waiting)
      : store_(std::move(store)),
        place_(internal::Describe(store_)),
        rank_(rank),
        world_size_(world_size),
        me_(IdentityOfThisProcess(rank)),
        facts_(std::move(facts)),
        waiting_(std::move(waiting)),
        members_(world_size),
        is_python_(world_size, false) {}

  absl::StatusOr<Met> Hold(absl::Time deadline);

 private:
  absl::Status CheckDescriptors() const;
  absl::Status Join();
  absl::Status CheckWorldSize();
  absl::StatusOr<std::string> Announce();
  absl::Status NumberTaken(const std::string& holder) const;
  absl::Status AwaitOthers(absl::Time deadline);
  bool CountsAll(int64_t amount);
  absl::StatusOr<bool> AllLockstepArrived();
  absl::Status LookForEach();
  absl::Status LookFor(int rank);
  absl::Status ReadMember(int rank);
  absl::Status CheckAlive(const RankIdentity& identity) const;
  bool Has(int rank) const { return members_[rank] != nullptr || is_python_[rank]; }
  std::vector<int> Missing() const;
  void SayWhoIsMissing() const;
  void Tell(const absl::Status& failure);
  absl::Status OtherFailure();
  absl::StatusOr<std::string> Read(const std::string& key);
  absl::StatusOr<std::string> PutFirst(const std::string& key, const std::string& value);
  std::string OtherSecrets();
  absl::Status ExplainSecrets(const absl::Status& error);
  absl::StatusOr<Met> Result() const;

  const C10dStore store_;
  const std::string place_;
  const int rank_;
  const int world_size_;
  const RankIdentity me_;
  const std::string facts_;
  const std::shared_ptr<WaitingNotice> waiting_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<bool> is_python_;
  bool warned_ = false;  // about a failure that no rank of this job reported
};

absl::Status Meeting::CheckDescriptors() const {
  const absl::Status status = CheckFreeDescriptors(kNeededDescriptors);
  return status.ok() ? status : Annotate(status, NameOf(me_));
}

// A sealed store refuses values that this job's ranks did not write. A store that is not sealed shows the sealed values
// of ranks with a secret. Any other error ends the exchange with the store, so it is thrown.
absl::StatusOr<std::string> CheckNotSealed(const std::string& key, absl::StatusOr<std::string> value) {
  if (!value.ok() && !absl::IsPermissionDenied(value.status())) ThrowIfError(value.status());
  if (!value.ok() || !IsSealed(*value)) return value;
  return absl::PermissionDeniedError(
      absl::StrCat("\"", key, "\" was written by a rank with a job secret, and this rank has none"));
}

absl::StatusOr<std::string> Meeting::Read(const std::string& key) {
  return CheckNotSealed(key, TorchStatusOr("", [&] { return store_->get_to_str(key); }));
}

// Sets the key to `value` if it does not exist, and returns its value.
absl::StatusOr<std::string> Meeting::PutFirst(const std::string& key, const std::string& value) {
  return CheckNotSealed(key, TorchStatusOr("", [&] { return store_->compareSet(key, "", value); }));
}

absl::Status Meeting::CheckWorldSize() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, PutFirst(kWorldKey, absl::StrCat(world_size_, "|", NameOf(me_))));
  const std::vector<std::string> first = absl::StrSplit(text, absl::MaxSplits('|', 1));
  int size = 0;
  if (first.size() != 2 || text.size() > kMostMessageBytes || !absl::SimpleAtoi(first[0], &size)) {
    return absl::InternalError(absl::StrCat("\"", kWorldKey, "\" does not hold a world size, but ", Excerpt(text)));
  }
  if (size == world_size_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(me_), " was given world size ", world_size_, ", but ",
                                                 first.back(), " world size ", first[0]));
}

// The ranks whose announcement cannot be read with this rank's secret, or without one.
std::string Meeting::OtherSecrets() {
  std::vector<std::string> others;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank == rank_ || !store_->check({MemberKey(rank)})) continue;
    if (absl::IsPermissionDenied(Read(MemberKey(rank)).status())) others.push_back(absl::StrCat("rank ", rank));
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
      NameOf(me_), ": ", error.message(), "; ",
      others.empty() ? "a rank has another job secret" : absl::StrCat("this rank has another job secret than ", others),
      ", or a stranger has reached the store: ", kJobSecretVariable,
      " must be the same on every rank, or set on none"));
}

absl::Status Meeting::NumberTaken(const std::string& holder) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const Member other, ParseMember(rank_, holder));
  const std::string fate = FateOf(other.identity);
  if (!fate.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the ", place_, " still holds ", NameOf(other.identity),
                                                      " of an earlier run, which ", fate,
                                                      ": each run needs a new one"));
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "rank ", rank_, ": two processes were given this rank: ", Process(other.identity), " and ", Process(me_)));
}

// Writes this rank's member key. If another process has written it, returns that value.
absl::StatusOr<std::string> Meeting::Announce() {
  const std::string member = absl::StrCat(Token(), "\n", EncodeIdentity(me_), "\n", facts_);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string holder, PutFirst(MemberKey(rank_), member));
  return holder == member ? "" : holder;
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
  if (!holder.empty()) return NumberTaken(holder);
  CountsAll(1);
  return absl::OkStatus();
}

absl::Status Meeting::CheckAlive(const RankIdentity& identity) const {
  const std::string fate = FateOf(identity);
  if (fate.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(NameOf(identity), " ", fate,
                                             " while the ranks met, or is of an earlier run "
                                             "whose keys the ",
                                             place_, " still holds"));
}

absl::Status Meeting::ReadMember(int rank) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Read(MemberKey(rank)));
  LOCKSTEP_ASSIGN_OR_RETURN(Member member, ParseMember(rank, text));
  members_[rank] = std::make_unique<Member>(std::move(member));
  return absl::OkStatus();
}

// Whether the counter has reached the world size. A stranger may raise the counter, so this only says when to check.
bool Meeting::CountsAll(int64_t amount) {
  int64_t count = 0;
  const absl::Status status = TorchStatus("", [&] { count = store_->add(kArrivedKey, amount); });
  if (!status.ok() && !absl::IsPermissionDenied(status) && !absl::IsInvalidArgument(status)) ThrowIfError(status);
  return status.ok() && count >= world_size_;
}

absl::StatusOr<bool> Meeting::AllLockstepArrived() {
  if (!CountsAll(0)) return false;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (members_[rank]) continue;
    if (!store_->check({MemberKey(rank)})) return false;
    LOCKSTEP_RETURN_IF_ERROR(ReadMember(rank));
  }
  return true;
}

// Checks the Python key first: a rank that has written it before a member key is not a Lockstep rank.
absl::Status Meeting::LookFor(int rank) {
  const bool has_python_key = store_->check({PythonKey(rank)});
  if (store_->check({MemberKey(rank)})) return ReadMember(rank);
  is_python_[rank] = has_python_key;
  return absl::OkStatus();
}

absl::Status Meeting::LookForEach() {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!Has(rank)) LOCKSTEP_RETURN_IF_ERROR(LookFor(rank));
    if (members_[rank]) LOCKSTEP_RETURN_IF_ERROR(CheckAlive(members_[rank]->identity));
  }
  return absl::OkStatus();
}

std::vector<int> Meeting::Missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!Has(rank)) missing.push_back(rank);
  }
  return missing;
}

void Meeting::SayWhoIsMissing() const {
  if (!waiting_) return;
  const auto who = [&]() -> std::string {
    const auto has_come = [](const auto& member) { return member != nullptr; };
    const bool other_writes = std::any_of(members_.begin(), members_.begin() + rank_, has_come);
    if (other_writes) return "";
    return absl::StrCat(DescribeRanks(Missing(), world_size_), " to come to the ", place_);
  };
  waiting_->Tick(who, ": have they started, with the same address and world size?");
}

// In a group of Lockstep ranks, each rank makes two requests a round, whatever the world size. Looking for individual
// ranks, to find Python ranks and missing ones, takes two requests for each rank, so it gets a tenth of the time.
absl::Status Meeting::AwaitOthers(absl::Time deadline) {
  absl::Duration pause = absl::Milliseconds(1);
  absl::Time next_look = absl::Now() + kLongestPause;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool all, AllLockstepArrived());
    if (store_->check({kFailureKey})) LOCKSTEP_RETURN_IF_ERROR(OtherFailure());
    if (all) return LookForEach();
    const absl::Time now = absl::Now();
    if (now >= next_look || now >= deadline) {
      LOCKSTEP_RETURN_IF_ERROR(CheckDescriptors());
      LOCKSTEP_RETURN_IF_ERROR(LookForEach());
      if (Missing().empty()) return absl::OkStatus();
      SayWhoIsMissing();
      next_look = absl::Now() + std::max(kLongestPause, 10 * (absl::Now() - now));
    }
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("these ranks have not joined: ", absl::StrJoin(Missing(), ", ")));
    }
    absl::SleepFor(std::min(pause, deadline - now));
    pause = std::min(2 * pause, kLongestPause);
  }
}

void Meeting::Tell(const absl::Status& failure) {
  const std::string text =
      absl::StrCat(static_cast<int>(failure.code()), "|", failure.message().substr(0, kMostMessageBytes));
  if (absl::IsPermissionDenied(PutFirst(kFailureKey, text).status())) store_->set(kFailureKey, text);
}

// If another rank reports missing ranks, this rank returns the same error as if the deadline had passed here first. Any
// other failure is returned as the other rank's. OK if no rank of this job reported a failure: then the announcements
// of the ranks show the reason.
absl::Status Meeting::OtherFailure() {
  absl::StatusOr<std::string> told = Read(kFailureKey);
  if (absl::IsPermissionDenied(told.status())) {
    LOG_IF(WARNING, !warned_) << NameOf(me_) << ": ignored while the ranks meet: " << told.status().message();
    warned_ = true;
    return absl::OkStatus();
  }
  LOCKSTEP_RETURN_IF_ERROR(told.status());
  const std::string text = told->substr(0, kMostMessageBytes);
  const std::pair<std::string, std::string> code_and_message = absl::StrSplit(text, absl::MaxSplits('|', 1));
  const bool late = code_and_message.first == absl::StrCat(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  if (late) return absl::DeadlineExceededError(code_and_message.second);
  const absl::Status failure = absl::AbortedError(code_and_message.second);
  launch::NoteErrorOfAnotherRank(failure);
  return failure;
}

absl::StatusOr<Met> Meeting::Result() const {
  Met met;
  for (int rank = 0; rank < world_size_; ++rank) met.all_lockstep &= !is_python_[rank];
  for (int rank = 0; met.all_lockstep && rank < world_size_; ++rank) {
    absl::StrAppend(&met.occasion, members_[rank]->token, ",");
    met.ranks.push_back(members_[rank]->identity);
    met.facts.push_back(members_[rank]->facts);
  }
  return met;
}

absl::StatusOr<Met> Meeting::Hold(absl::Time deadline) {
  absl::Status status = Join();
  if (status.ok()) status = AwaitOthers(deadline);
  if (status.ok()) return Result();
  if (absl::IsPermissionDenied(status)) status = ExplainSecrets(status);
  // Reported to the others before this rank fails. The store ends with rank 0, which serves it, so the others get time
  // to read the reason there.
  Tell(status);
  if (rank_ == 0) absl::SleepFor(3 * kLongestPause);
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
                                 const std::shared_ptr<WaitingNotice>& waiting) {
  const auto result = std::make_shared<absl::StatusOr<Met>>(absl::UnknownError("not met"));
  const absl::Status spoken = internal::CallByDeadline(
      [=] {
        Meeting meeting(store, rank, world_size, facts, waiting);
        *result = meeting.Hold(deadline);
        return absl::OkStatus();
      },
      // Time for a meeting that fails at the deadline to build its error.
      std::max(deadline, absl::Now()) + absl::Seconds(1));
  if (!spoken.ok()) return ExplainStore(spoken, store);
  return *result;
}

}  // namespace lockstep::comm
