#ifndef LOCKSTEP_COMM_RENDEZVOUS_WAITING_NOTICE_H_
#define LOCKSTEP_COMM_RENDEZVOUS_WAITING_NOTICE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::comm {

struct WaitingNoticeOptions {
  std::string who;         // prefix of the lines: "rank 0"
  absl::Duration timeout;  // maximum time of the wait
  // The first line comes after this time, the next ones after 3 and 6 times as long, and then one after every further 6
  // times.
  absl::Duration interval = absl::Seconds(10);                   // positive
  std::function<void(const std::string& line)> write = nullptr;  // null: writes to stderr
};

// Reports at intervals that a rank still waits, so that a job whose ranks do not all arrive does not appear to hang.
// Not thread-safe.
//
//   WaitingNotice notice({"rank 0", absl::Minutes(5)});
//   while (!AllAreHere()) {
//     notice.Tick([&] { return WaitingForRanks(Missing(), world_size); });
//     absl::SleepFor(absl::Milliseconds(100));
//   }
class WaitingNotice {
 public:
  explicit WaitingNotice(WaitingNoticeOptions options);

  // Writes "rank 0: waiting for <what()> (10 s of 300 s)<advice>" if a line is due. `what` returns an empty string if
  // another rank reports instead; no line is then written.
  void Tick(const std::function<std::string()>& what, absl::string_view advice);

 private:
  const WaitingNoticeOptions options_;
  const absl::Time start_;
  absl::Duration next_;
};

// "ranks 3, 17, 40-255 (218 of 256)". After ten ranges: "and 97 more".
std::string DescribeRanks(const std::vector<int>& ascending, int world_size);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_WAITING_NOTICE_H_
