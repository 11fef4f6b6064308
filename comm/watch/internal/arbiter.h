#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_ARBITER_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_ARBITER_H_

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/watch/internal/frame.h"

namespace lockstep::comm::internal {

using Clock = std::chrono::steady_clock;

// How long a process whose connection ended may take to show how it ended; a busy machine needs some of it.
constexpr auto kFatePatience = std::chrono::milliseconds(100);
// How long an error of a rank's own waits for a better explanation.
constexpr auto kTroublePatience = std::chrono::milliseconds(500);
// How long an inquiry waits for answers.
constexpr auto kInquiryPatience = std::chrono::milliseconds(1000);
// How long after one inquiry into a call that lasts long the next one may come: several ranks ask at about the same
// time.
constexpr auto kStallPause = std::chrono::seconds(5);
// How long a mismatch waits for the fingerprints of the ranks that have not said theirs.
constexpr auto kMismatchPatience = std::chrono::milliseconds(200);

// The hub's decisions: receives the reports of all ranks, and determines which of their problems is the group's first
// cause. It has no socket, clock or thread: its caller passes events with their times, and it passes frames for the
// ranks to `send`. Not thread-safe.
class Arbiter {
 public:
  // `send` gives a frame to a rank that has joined, `hub` among them; `fate_of` is FateOf() on the hub.
  Arbiter(std::vector<RankIdentity> ranks, int hub, Clock::time_point joining_deadline,
          std::function<void(int rank, const Frame&)> send, std::function<std::string(const RankIdentity&)> fate_of);

  // False if that rank has joined already, or there is none of that number.
  bool Join(int rank);
  bool complete() const { return joined_ == members_.size(); }
  // Returns whether a rank that has not joined still may: it is not known to be dead.
  bool ExpectsMore() const;

  void Receive(int rank, const Frame& frame, Clock::time_point now);
  // The rank's connection is gone; `how` as Connection::end().
  void Lose(int rank, const std::string& how, Clock::time_point now);

  // Handles everything that is due, and returns the time of the next event.
  Clock::time_point Tick(Clock::time_point now);

 private:
  struct Member {
    RankIdentity identity;
    bool joined = false;
    std::optional<Frame> farewell;
    std::optional<Frame> answer;  // to the inquiry under way
    std::string lost;             // how its connection ended; empty while it is open
    Clock::time_point lost_due;
    bool there() const { return joined && !farewell && lost.empty(); }
  };
  struct Agreement {
    std::map<std::string, std::vector<int>> ranks;  // by fingerprint
    size_t said = 0;
    Clock::time_point mismatch_due = Clock::time_point::max();
  };
  struct Inquiry {
    Frame question;
    Clock::time_point due;
  };

  void Decide(absl::StatusCode code, const std::string& text, int origin = -1);
  void SendAll(const Frame& frame);
  void Leave(int rank, const Frame& farewell);
  void RecordTrouble(int rank, const Frame& frame, Clock::time_point now);
  void Ask(const Frame& question, Clock::time_point now);
  void RecordLong(const Frame& frame, Clock::time_point now);
  void RecordAnswer(int rank, const Frame& frame);
  void RecordFingerprint(int rank, const Frame& frame, Clock::time_point now);

  Clock::time_point TickJoining(Clock::time_point now);
  Clock::time_point TickLost(Clock::time_point now);
  void TickTrouble(Clock::time_point now);

  std::string FateOfLost(const Member& member);
  std::string FateOfMissing() const;
  void LookForDeadAmongMissing(Clock::time_point now);
  void ConcludeInquiry();
  void ConcludeMismatch(int64_t sequence, const Agreement& agreement);
  // The first rank that left before call `sequence`, or nullptr.
  const Member* LeaverBefore(int64_t sequence) const;

  const int hub_;
  std::vector<Member> members_;
  const Clock::time_point joining_deadline_;
  const std::function<void(int, const Frame&)> send_;
  const std::function<std::string(const RankIdentity&)> fate_of_;
  size_t joined_ = 0;
  Clock::time_point next_look_;         // for dead processes among the ranks that have not joined
  size_t lost_ = 0;                     // members whose end is still to be explained
  std::optional<int> earliest_leaver_;  // of the ranks that have left, the first of those with the earliest last call
  std::optional<Frame> cause_;
  std::optional<Frame> trouble_;
  Clock::time_point trouble_due_;
  std::optional<Inquiry> inquiry_;
  Clock::time_point quiet_until_;  // about calls that last long
  int64_t inquiries_ = 0;
  std::map<int64_t, Agreement> agreements_;  // by sequence
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_ARBITER_H_
