#include "lockstep/launch/node/wait_lines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

// A job that forms within this time needs no line about it, and a node that is a spare for so short a time none either.
constexpr absl::Duration kQuiet = absl::Seconds(2);
// A job ends its ranks for a newcomer, or adds it, within this time.
constexpr absl::Duration kQuietNewcomer = absl::Seconds(5);
// If nobody has answered for so long, a line says why.
constexpr absl::Duration kQuietSilence = absl::Seconds(10);
// When the second line about a wait comes, and how often the others.
constexpr absl::Duration kSecondLine = absl::Seconds(30), kFurtherLines = absl::Minutes(1);
// How much later than the last line another one follows, if another node has come.
constexpr absl::Duration kChangePause = absl::Seconds(10);

std::string InSeconds(int64_t ns) {
  return absl::FormatDuration(absl::Seconds(absl::ToInt64Seconds(absl::Nanoseconds(ns) + absl::Milliseconds(500))));
}

}  // namespace

WaitLines::WaitLines(std::string where, absl::Duration join_timeout, int64_t now_ns)
    : where_(std::move(where)), join_timeout_(join_timeout), since_ns_(now_ns) {}

void WaitLines::OnJob(Wait wait, const NodeLimits& limits, int members, int64_t now_ns) {
  limits_ = limits;
  members_ = members;
  if (std::exchange(wait_, wait) != wait) since_ns_ = now_ns;
}

std::string WaitLines::OnReach(const Rendezvous::Reach& reach, bool has_ranks, int64_t now_ns) {
  if (!reach.away) return away_from_.empty() ? "" : absl::StrCat(std::exchange(away_from_, ""), " answers again");
  if (!away_from_.empty() || !reach.silence) return "";
  const Rendezvous::Silence& silence = *reach.silence;
  away_from_ = silence.who;
  return absl::StrCat(silence.what, silence.why.empty() ? "" : absl::StrCat(" (", silence.why, ")"), "; this node ",
                      has_ranks ? "ends its ranks and " : "", "tries again for ", InSeconds(silence.until_ns - now_ns));
}

std::string WaitLines::Take(const Rendezvous::Reach& reach, std::optional<int> ready, int64_t now_ns) {
  const bool waits_for_answer = wait_ == Wait::kForming || !away_from_.empty();
  if (waits_for_answer && reach.silence && absl::Nanoseconds(now_ns - reach.silence->since_ns) >= kQuietSilence) {
    return TakeSilence(reach, now_ns);
  }
  if (wait_ == Wait::kSpare) return TakeSpare(now_ns);
  return wait_ == Wait::kForming ? TakeForming(ready, now_ns) : "";
}

std::string WaitLines::TakeForming(std::optional<int> ready, int64_t now_ns) {
  const int now = ready.value_or(1);
  const bool has_changed = said_ready_ && now != *said_ready_ && *said_ns_ >= since_ns_ &&
                           absl::Nanoseconds(now_ns - *said_ns_) >= kChangePause;
  if (now >= limits_.max_nodes || !(has_changed || IsDue(since_ns_, kQuiet, now_ns))) return "";
  said_ready_ = now;
  said_ns_ = now_ns;
  const std::string nodes = RangeText(limits_, " to ");
  const int64_t lasts_ns = now_ns - since_ns_;
  std::string time;
  if (absl::Nanoseconds(lasts_ns) >= kSecondLine) {
    time = absl::StrCat(" for ", InSeconds(lasts_ns), " (of ", absl::FormatDuration(join_timeout_), ")");
  }
  if (!ready) return absl::StrCat("waiting", time, " at ", where_, " until ", nodes, " nodes are there");
  return absl::StrCat(now, " of ", nodes, " nodes ", now == 1 ? "is" : "are", " there, at ", where_,
                      "; waiting for more", time);
}

std::string WaitLines::TakeSilence(const Rendezvous::Reach& reach, int64_t now_ns) {
  const Rendezvous::Silence& silence = *reach.silence;
  if (!IsDue(silence.since_ns, kQuietSilence, now_ns)) return "";
  said_ns_ = now_ns;
  return absl::StrCat(reach.met ? absl::StrCat(silence.who, " has not answered") : silence.what, " for ",
                      InSeconds(now_ns - silence.since_ns), " (of ", InSeconds(silence.until_ns - silence.since_ns),
                      ")", silence.why.empty() ? "" : absl::StrCat(": ", silence.why));
}

std::string WaitLines::TakeSpare(int64_t now_ns) {
  const bool has_all = members_ >= limits_.max_nodes;
  if (said_spare_ || absl::Nanoseconds(now_ns - since_ns_) < (has_all ? kQuiet : kQuietNewcomer)) return "";
  said_spare_ = true;
  if (has_all) {
    return absl::StrCat("the job has all its ", limits_.max_nodes, " nodes; this one waits as a spare");
  }
  return absl::StrCat(
      "the job runs on ", NodesText(members_),
      " without this one, which waits as a spare; do all launchers have --nnodes=", RangeText(limits_, ":"), "?");
}

// Returns whether another line is due at `now_ns` about a state that lasts since `since_ns`.
bool WaitLines::IsDue(int64_t since_ns, absl::Duration first, int64_t now_ns) const {
  const absl::Duration lasts = absl::Nanoseconds(now_ns - since_ns);
  const absl::Duration said =
      said_ns_ ? absl::Nanoseconds(std::max<int64_t>(*said_ns_ - since_ns, 0)) : absl::ZeroDuration();
  for (const absl::Duration line : {first, kSecondLine}) {
    if (said < line && line <= lasts) return true;
  }
  return absl::Floor(said, kFurtherLines) < absl::Floor(lasts, kFurtherLines);
}

}  // namespace lockstep::launch
