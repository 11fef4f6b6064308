#ifndef LOCKSTEP_COMM_RENDEZVOUS_WAITING_NOTICE_H_
#define LOCKSTEP_COMM_RENDEZVOUS_WAITING_NOTICE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

struct WaitingNoticeOptions {
  std::string who;         // whose lines these are: "rank 0"
  absl::Duration timeout;  // how long the wait may take
  // The first line comes after this time, the next after 3 and 6 times as long, and then one each 6 times as long.
  absl::Duration interval = absl::Seconds(10);                   // positive
  std::function<void(const std::string& line)> write = nullptr;  // null: to stderr
};

// Says now and then that a rank still waits, so that a job whose ranks do not all come does not look like one that
// hangs. One thread uses it at a time.
//
//   WaitingNotice notice({"rank 0", absl::Minutes(5)});
//   while (!AllAreHere()) {
//     notice.Tick([&] { return WaitingForRanks(Missing(), world_size); });
//     absl::SleepFor(absl::Milliseconds(100));
//   }
class WaitingNotice {
 public:
  explicit WaitingNotice(WaitingNoticeOptions options);

  // Writes "rank 0: waiting for <what()> (10 s of 300 s)<advice>" if a line is due. `what` returns an empty string
  // where another rank speaks; that line is left out.
  void Tick(const std::function<std::string()>& what, absl::string_view advice);

 private:
  const WaitingNoticeOptions options_;
  const absl::Time start_;
  absl::Duration next_;
};

// "ranks 3, 17, 40-255 (218 of 256)"; after ten ranges "and 97 more".
std::string DescribeRanks(const std::vector<int>& ascending, int world_size);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_WAITING_NOTICE_H_
