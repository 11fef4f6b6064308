#include "lockstep/launch/status/status_table.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/printable.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {
namespace {

using State = RankStatus::State;

constexpr char kBold[] = "\x1b[1m", kRed[] = "\x1b[31m", kYellow[] = "\x1b[33m", kPlain[] = "\x1b[0m";
// From which age on the last step is mentioned.
constexpr absl::Duration kOldStep = absl::Seconds(10);
constexpr double kMuchSlower = 0.9;  // of the fastest rank's rate
// A rank reports its steps at most ten times a second (launch/link).
constexpr double kReportPauseSeconds = 0.1;

// The first `width` characters, which may have several bytes each.
std::string Cut(const std::string& text, int width) {
  if (width <= 0) return text;
  size_t end = 0;
  for (int characters = 0; end < text.size(); ++end) {
    const bool begins_character = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (begins_character && characters++ == width) break;
  }
  return text.substr(0, end);
}

class Lines {
 public:
  Lines(const TableSize& size, bool colours) : size_(size), colours_(colours) {}

  void Add(const std::string& text, const char* colour = nullptr) {
    const std::string line = Cut(text, size_.width);
    lines_.push_back(colours_ && colour ? absl::StrCat(colour, line, kPlain) : line);
  }

  // How many more lines fit.
  size_t room() const {
    if (size_.height <= 0) return std::numeric_limits<size_t>::max();
    return std::max(size_.height - static_cast<int>(lines_.size()), 0);
  }

  // Adds a row for each rank, or as many as fit and a line about the others.
  template <typename Add>
  void AddRows(size_t rows, absl::string_view what, Add add) {
    const size_t shown = rows <= room() ? rows : std::max<size_t>(room(), 1) - 1;
    for (size_t i = 0; i < shown; ++i) add(i);
    if (shown < rows && room() > 0) this->Add(absl::StrCat("and ", rows - shown, " more ", what));
  }

  std::vector<std::string> Take() {
    if (size_.height > 0 && lines_.size() > size_.height) lines_.resize(size_.height);
    return std::move(lines_);
  }

 private:
  const TableSize size_;
  const bool colours_;
  std::vector<std::string> lines_;
};

std::string RanksText(int first, int count) {
  if (count == 0) return "no rank";
  if (first < 0) return absl::StrCat(count, " ranks");
  return count == 1 ? absl::StrCat("rank ", first) : absl::StrCat("ranks ", first, "-", first + count - 1);
}

std::string HostText(const HostStatus& host) {
  const bool plain = host.address.empty() || host.address == host.host;
  return Printable(absl::StrCat(host.host, plain ? "" : absl::StrCat(" (", host.address, ")"), " ",
                                RanksText(host.first_rank, host.ranks),
                                host.state == HostStatus::State::kMember ? "" : absl::StrCat(" ", NameOf(host.state))));
}

std::string NodesText(const JobStatus& status) {
  if (status.min_nodes == status.max_nodes) return absl::StrCat(status.max_nodes, " hosts");
  return absl::StrCat(status.min_nodes, " to ", status.max_nodes, " hosts");
}

std::string PhaseText(const JobStatus& status) {
  return absl::StrCat(NameOf(status.phase), " for ", ShortTime(status.in_phase));
}

std::string HowItIs(const RankStatus& rank) {
  if (rank.state != State::kEnded) return std::string(NameOf(rank.state));
  if (rank.signal == 0) return absl::StrCat("exited ", rank.exit_code);
  return absl::StrCat("ended ", absl::StripPrefix(SignalName(rank.signal), "SIG"));
}

bool EndedBadly(const RankStatus& rank) {
  return rank.state == State::kEnded && (rank.signal != 0 || rank.exit_code != 0);
}

// Returns whether `a` is slower than `b`, for the choice of the slowest.
bool Slower(const RankStatus& a, const RankStatus& b) {
  if (*a.step != *b.step) return *a.step < *b.step;
  return a.steps_per_second.value_or(0) < b.steps_per_second.value_or(0);
}

// The index of the slowest rank; -1 if none is much slower than another, or if all stand still.
int Slowest(const std::vector<RankStatus>& ranks) {
  int slowest = -1;
  int64_t most_steps = 0;
  double best_rate = 0;
  bool stand_still = true;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    if (ranks[i].state != State::kRunning || !ranks[i].step) continue;
    if (slowest < 0 || Slower(ranks[i], ranks[slowest])) slowest = i;
    most_steps = std::max(most_steps, *ranks[i].step);
    best_rate = std::max(best_rate, ranks[i].steps_per_second.value_or(0));
    stand_still &= ranks[i].steps_per_second == 0;
  }
  if (slowest < 0 || stand_still) return -1;
  const double rate = ranks[slowest].steps_per_second.value_or(0);
  const bool is_behind = static_cast<double>(most_steps - *ranks[slowest].step) > kReportPauseSeconds * rate;
  return is_behind || rate < kMuchSlower * best_rate ? slowest : -1;
}

std::string RankRow(const RankStatus& rank, bool is_slowest) {
  const std::string step = rank.step ? absl::StrCat(*rank.step) : "-";
  const std::string rate = rank.steps_per_second ? absl::StrFormat("%.2f", *rank.steps_per_second) : "-";
  return absl::StrFormat("%5s %6d %8s  %-10s %7s %10s %8s%s", rank.rank < 0 ? "-" : absl::StrCat(rank.rank),
                         rank.local_rank, rank.pid == 0 ? "-" : absl::StrCat(rank.pid), HowItIs(rank),
                         ShortTime(rank.in_state), step, rate, is_slowest ? "  slowest" : "");
}

// Ranks that stay (launch/link) may start again without a limit.
std::string RestartsText(const JobStatus& status) {
  if (status.max_restarts > 0) {
    return absl::StrCat(status.restarts, " of ", status.max_restarts, " restarts");
  }
  return absl::StrCat(status.restarts, status.restarts == 1 ? " restart" : " restarts");
}

// Why training stands still, and for how long if the ranks report their steps. "" if it does not.
std::string StallText(const JobStatus& status) {
  std::optional<absl::Duration> age;
  for (const RankStatus& rank : status.ranks) {
    if (rank.since_step && (!age || *rank.since_step < *age)) age = rank.since_step;
  }
  const bool is_old = age && *age >= kOldStep && status.phase == JobStatus::Phase::kRunning;
  return absl::StrCat(is_old ? absl::StrCat("last step ", ShortTime(*age), " ago") : "",
                      is_old && !status.stall.empty() ? ": " : "", status.stall);
}

void AddHead(const JobStatus& status, Lines* lines) {
  lines->Add(Printable(absl::StrCat("job ", status.job_id, ": ", PhaseText(status), ", generation ", status.generation,
                                    ", ", RestartsText(status))));
  lines->Add(Printable(absl::StrCat("launcher ", status.pid, " on host ", status.host, " for ",
                                    ShortTime(status.running), ": ", status.program)));
  const std::string stall = StallText(status);
  if (!stall.empty()) lines->Add(Printable(stall));
  if (!status.trouble.empty()) lines->Add(Printable(status.trouble));
  if (!status.meets_others && status.hosts.size() < 2) return;
  std::vector<std::string> hosts;
  int there = 0;
  for (const HostStatus& host : status.hosts) {
    hosts.push_back(HostText(host));
    there += TakesPart(host);
  }
  const bool forms = status.phase == JobStatus::Phase::kForming;
  if (forms && status.ready) there = std::max(there, *status.ready);
  // Before the first start only the launcher that leads knows who is there.
  const std::string count = forms && !status.ready && hosts.empty() ? "needs" : absl::StrCat(there, " of");
  lines->Add(absl::StrCat(count, " ", NodesText(status), hosts.empty() ? "" : ": ", absl::StrJoin(hosts, ", ")));
}

std::string JobRow(const RunningJob& job) {
  if (!job.status.ok()) return absl::StrFormat("%8d  %s", job.pid, Printable(job.status.status().message()));
  const JobStatus& status = *job.status;
  const auto runs = [](const RankStatus& rank) { return rank.state != State::kEnded && rank.pid != 0; };
  const auto running = std::count_if(status.ranks.begin(), status.ranks.end(), runs);
  return absl::StrFormat("%8d  %-12s %-9s %7s %9s  %s", job.pid, Printable(status.job_id), NameOf(status.phase),
                         ShortTime(status.running), absl::StrCat(running, " of ", status.ranks.size()),
                         Printable(status.program));
}

}  // namespace

std::string ShortTime(absl::Duration time) {
  const int64_t seconds = std::max<int64_t>(absl::ToInt64Seconds(time), 0);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds / 3600 % 24);
}

std::vector<std::string> StatusTable(const JobStatus& status, const TableSize& size, bool colours) {
  Lines lines(size, colours);
  AddHead(status, &lines);
  if (status.ranks.empty()) return lines.Take();
  lines.Add("");
  lines.Add(" RANK  LOCAL      PID  STATE          FOR       STEP  STEPS/S", kBold);
  const int slowest = Slowest(status.ranks);
  lines.AddRows(status.ranks.size(), "ranks", [&](size_t i) {
    const RankStatus& rank = status.ranks[i];
    const bool is_slowest = static_cast<int>(i) == slowest;
    lines.Add(RankRow(rank, is_slowest), EndedBadly(rank) ? kRed : is_slowest ? kYellow : nullptr);
  });
  return lines.Take();
}

std::vector<std::string> JobsTable(const std::vector<RunningJob>& jobs, const TableSize& size, bool colours) {
  Lines lines(size, colours);
  lines.Add("     PID  JOB          STATE         FOR     RANKS  PROGRAM", kBold);
  lines.AddRows(jobs.size(), "jobs",
                [&](size_t i) { lines.Add(JobRow(jobs[i]), jobs[i].status.ok() ? nullptr : kRed); });
  return lines.Take();
}

}  // namespace lockstep::launch
