#include "lockstep/launch/status/top.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/status/status_table.h"
#include "lockstep/launch/status/terminal.h"

namespace lockstep::launch {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(500);

// The window: the table, and below it what there is to say.
std::vector<std::string> Window(const JobStatus& status, const std::string& problem, bool colours) {
  TableSize size = StdoutSize();
  const bool has_footer = size.height > 2;
  if (has_footer) size.height -= 2;
  std::vector<std::string> lines = StatusTable(status, size, colours);
  if (has_footer) lines.insert(lines.end(), {"", problem.empty() ? "q: quit" : problem});
  return lines;
}

// Shows the job until there is a reason to end, and returns the exit code. `job` is what was seen last.
int Show(Terminal* terminal, bool colours, RunningJob* job, bool* has_ended) {
  std::string problem;
  for (;;) {
    const int64_t next_ns = After(kPeriod);
    terminal->Draw(Window(*job->status, problem, colours));
    const Terminal::Input input = terminal->Wait(next_ns);
    if (input.signal != 0) return 128 + input.signal;
    if (input.key == 'q' || input.key == 'Q') return 0;
    RunningJob seen = LookAtJob(job->folder, job->pid);
    *has_ended = absl::IsNotFound(seen.status.status());
    if (*has_ended) return 0;
    problem = seen.status.ok() ? "" : std::string(seen.status.status().message());
    if (seen.status.ok()) *job = std::move(seen);
  }
}

}  // namespace

absl::StatusOr<int> RunTop(RunningJob job) {
  const bool colours = StdoutHasColours();
  bool has_ended = false;
  int code = 0;
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Terminal> terminal, Terminal::Create());
    code = Show(terminal.get(), colours, &job, &has_ended);
  }
  for (const std::string& line : StatusTable(*job.status, StdoutSize(), colours)) std::cout << line << "\n";
  if (has_ended) std::cout << "the launcher with pid " << job.pid << " has ended\n";
  std::cout << std::flush;
  return code;
}

}  // namespace lockstep::launch
