#include "lockstep/checkpoint/manager/preemption_notice.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {
namespace {

// A signal handler can reach its object only through a global. It is lock-free, as handlers require.
std::atomic<bool> exists{false};
std::atomic<bool> received{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void Record(int) { received.store(true); }

}  // namespace

absl::StatusOr<std::unique_ptr<PreemptionNotice>> PreemptionNotice::Create(const std::vector<int>& signals) {
  if (exists.exchange(true)) return absl::FailedPreconditionError("this process has a PreemptionNotice already");
  std::unique_ptr<PreemptionNotice> notice(new PreemptionNotice);
  received.store(false);
  struct sigaction action = {};
  action.sa_handler = Record;
  action.sa_flags = SA_RESTART;  // the signal must not make system calls of the program fail
  sigemptyset(&action.sa_mask);
  for (const int signal : signals) {
    struct sigaction before;
    if (sigaction(signal, &action, &before) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("handle signal ", signal));
    }
    notice->before_.emplace_back(signal, before);
  }
  return notice;
}

PreemptionNotice::~PreemptionNotice() {
  // In reverse, so that the first handler of a signal that occurs twice is restored.
  for (auto before = before_.rbegin(); before != before_.rend(); ++before) {
    sigaction(before->first, &before->second, nullptr);
  }
  exists.store(false);
}

bool PreemptionNotice::Received() const { return received.load(); }

absl::StatusOr<bool> PreemptionNotice::ReceivedByAnyRank(comm::ProcessGroup* group) const {
  if (!group) return Received();
  // If all strings are empty, this is one collective, of the sizes.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, group->AllGatherBytes(Received() ? "1" : ""));
  return std::any_of(ranks.begin(), ranks.end(), [](const std::string& rank) { return !rank.empty(); });
}

}  // namespace lockstep::checkpoint
