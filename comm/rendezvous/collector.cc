#include "lockstep/comm/rendezvous/collector.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::comm {
namespace {

// The most ranks in one request. A request has at most 64 KiB of keys and, from ranks, a few hundred bytes for each
// answer.
constexpr size_t kMostRanks = 128;

std::vector<std::string> MemberKeys(const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(MemberKey(rank));
  return keys;
}

std::vector<int> Part(const std::vector<int>& ranks, size_t begin) {
  const size_t end = std::min(ranks.size(), begin + kMostRanks);
  return {ranks.begin() + begin, ranks.begin() + end};
}

}  // namespace

Collector::Collector(Board* board, RankIdentity me, int world_size)
    : board_(board), me_(std::move(me)), roster_(world_size) {
  for (int rank = 0; rank < world_size; ++rank) missing_.push_back(rank);
}

void Collector::Found(const std::vector<int>& ranks) {
  std::vector<int> left;
  std::set_difference(missing_.begin(), missing_.end(), ranks.begin(), ranks.end(), std::back_inserter(left));
  missing_ = std::move(left);
}

absl::Status Collector::Read(const std::vector<int>& ranks) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Member> members, board_->ReadMembers(ranks));
  for (size_t i = 0; i < ranks.size(); ++i) roster_[ranks[i]] = std::move(members[i]);
  Found(ranks);
  return absl::OkStatus();
}

absl::StatusOr<bool> Collector::AwaitMore(absl::Duration patience) {
  const std::vector<int> next = Part(missing_, 0);
  if (!board_->Await(MemberKeys(next), patience)) return false;
  LOCKSTEP_RETURN_IF_ERROR(Read(next));
  return true;
}

absl::Status Collector::LookForLockstepRanks() {
  const std::vector<int> missing = missing_;
  for (size_t begin = 0; begin < missing.size(); begin += kMostRanks) {
    std::vector<int> came = Part(missing, begin);
    if (!board_->Has(MemberKeys(came))) {
      const auto has_not_come = [this](int rank) { return !board_->Has({MemberKey(rank)}); };
      came.erase(std::remove_if(came.begin(), came.end(), has_not_come), came.end());
    }
    if (!came.empty()) LOCKSTEP_RETURN_IF_ERROR(Read(came));
  }
  return absl::OkStatus();
}

// A rank that has written the Python key before an announcement is not a Lockstep rank.
void Collector::LookForPythonRanks() {
  std::vector<int> found;
  for (const int rank : missing_) {
    if (board_->Has({PythonKey(rank)}) && !board_->Has({MemberKey(rank)})) found.push_back(rank);
  }
  Found(found);
}

bool Collector::IsQuiet() {
  const int64_t keys = board_->CountKeys();
  return std::exchange(keys_, keys) == keys;
}

absl::Status Collector::Look() {
  const size_t before = missing_.size();
  LOCKSTEP_RETURN_IF_ERROR(LookForLockstepRanks());
  if (missing_.size() == before) LookForPythonRanks();
  return CheckAlive();
}

absl::Status Collector::CheckAlive() const {
  for (const std::optional<Member>& member : roster_) {
    if (member) LOCKSTEP_RETURN_IF_ERROR(CheckLives(member->identity, me_, board_->place()));
  }
  return absl::OkStatus();
}

absl::Status CheckLives(const RankIdentity& identity, const RankIdentity& me, const std::string& place) {
  if (!SeeTheSameProcesses(identity, me)) return absl::OkStatus();
  const std::string fate = FateOfVisible(identity);
  if (fate.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(NameOf(identity), " ", fate,
                                             " while the ranks met, or is of an earlier run whose keys the ", place,
                                             " still holds"));
}

}  // namespace lockstep::comm
