#include "lockstep/launch/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/output/held_signals.h"

namespace lockstep::launch {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr int64_t kAllBytes = std::numeric_limits<int64_t>::max();
// The descriptors that a rank needs besides its output, for its process and its report; and the descriptors that the
// launcher needs once, with a margin.
constexpr int kDescriptorsOfARank = 3, kOtherDescriptors = 16;

bool IsOn(int local_rank, const RankStreams& streams) {
  return streams.Have(local_rank, Streams::kStdout) || streams.Have(local_rank, Streams::kStderr);
}

// Green, yellow, blue, magenta, cyan and red, by local rank.
std::string Colored(absl::string_view prefix, int local_rank) {
  constexpr int kColors[] = {32, 33, 34, 35, 36, 31};
  return absl::StrCat("\x1b[", kColors[local_rank % std::size(kColors)], "m", prefix, "\x1b[0m");
}

absl::StatusOr<UniqueFd> OpenNull() {
  UniqueFd null = AboveStdio(UniqueFd(open("/dev/null", O_WRONLY | O_CLOEXEC)));
  if (!null.valid()) return DescriptorError("launch: opening /dev/null", errno, absl::StatusCode::kFailedPrecondition);
  return null;
}

// The errno of the write that failed, or 0.
int WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

// Before the first rank starts. A teed stream needs its pipe and its file for as long as the rank runs.
absl::Status CheckDescriptors(const LaunchOptions& options) {
  int needed = kOtherDescriptors + kDescriptorsOfARank * (options.nproc_per_node + options.spares);
  for (int rank = 0; rank < options.nproc_per_node; ++rank) {
    for (const Streams stream : {Streams::kStdout, Streams::kStderr}) needed += 2 * options.tee.Have(rank, stream);
  }
  return Annotate(CheckFreeDescriptors(needed), absl::StrCat("launch: ", options.nproc_per_node, " ranks"));
}

}  // namespace

Output::Output(const LaunchOptions& options)
    : options_(options),
      filtered_out_{options.duplicate_stdout_filters, "filtered_stdout.log", {}, -1},
      filtered_err_{options.duplicate_stderr_filters, "filtered_stderr.log", {}, -1} {}

absl::StatusOr<std::unique_ptr<Output>> Output::Create(const LaunchOptions& options) {
  bool logs = !options.log_dir.empty(), tees = false;
  for (int rank = 0; rank < options.nproc_per_node; ++rank) {
    tees |= IsOn(rank, options.tee);
    logs |= tees || IsOn(rank, options.redirects);
  }
  std::unique_ptr<Output> output(new Output(options));
  LOCKSTEP_RETURN_IF_ERROR(CheckDescriptors(options));
  if (tees) {
    output->out_ = std::make_unique<Console>(STDOUT_FILENO);
    output->err_ = std::make_unique<Console>(STDERR_FILENO);
    output->buffer_.resize(kBufferBytes);
  }
  if (logs) {
    LOCKSTEP_ASSIGN_OR_RETURN(output->folder_, CreateLogFolder(options.log_dir, options.run_id));
    if (options.log_dir.empty()) output->Notice(absl::StrCat("the output of the ranks is in ", output->folder_));
  }
  return output;
}

void Output::Notice(absl::string_view notice) const {
  if (options_.on_notice) options_.on_notice(std::string(notice));
}

bool Output::IsShown(int local_rank) const {
  return options_.shown_local_ranks.empty() || options_.shown_local_ranks.count(local_rank) != 0;
}

absl::StatusOr<RankOutput> Output::Open(int attempt, int local_rank) {
  RankOutput output;
  LOCKSTEP_ASSIGN_OR_RETURN(output.out, OpenStream(attempt, local_rank, Streams::kStdout));
  LOCKSTEP_ASSIGN_OR_RETURN(output.err, OpenStream(attempt, local_rank, Streams::kStderr));
  return output;
}

absl::StatusOr<UniqueFd> Output::OpenStream(int attempt, int local_rank, Streams stream) {
  const bool is_stdout = stream == Streams::kStdout;
  const bool is_teed = options_.tee.Have(local_rank, stream), is_shown = IsShown(local_rank);
  if (!is_teed && !options_.redirects.Have(local_rank, stream)) {
    if (is_shown) return UniqueFd();
    return OpenNull();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(LogFile log, CreateLogFile(folder_, attempt, local_rank, is_stdout ? "stdout" : "stderr"));
  if (!is_stdout) stderr_paths_[local_rank] = log.path;
  if (!is_teed || !is_shown) return std::move(log.fd);
  return AddTee(std::move(log), attempt, local_rank, is_stdout);
}

absl::Status Output::OpenFiltered(int attempt, Filtered* filtered) {
  if (filtered->texts.empty() || filtered->attempt == attempt) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(filtered->log, CreateAttemptFile(folder_, attempt, filtered->name));
  filtered->attempt = attempt;
  return absl::OkStatus();
}

std::string Output::PrefixOf(int local_rank) const {
  const int rank = options_.node_rank * options_.nproc_per_node + local_rank;
  return FillIn(options_.log_line_prefix_template, {{"role_name", Printable(options_.role)},
                                                    {"local_rank", absl::StrCat(local_rank)},
                                                    {"rank", absl::StrCat(rank)}});
}

absl::StatusOr<UniqueFd> Output::AddTee(LogFile log, int attempt, int local_rank, bool is_stdout) {
  Filtered* filtered = is_stdout ? &filtered_out_ : &filtered_err_;
  LOCKSTEP_RETURN_IF_ERROR(OpenFiltered(attempt, filtered));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return DescriptorError(absl::StrCat("launch: no pipe for the output of local rank ", local_rank), errno,
                           absl::StatusCode::kResourceExhausted);
  }
  UniqueFd read_end(ends[0]), write_end = AboveStdio(UniqueFd(ends[1]));
  fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  const std::string prefix = PrefixOf(local_rank);
  Console* console = is_stdout ? out_.get() : err_.get();
  std::optional<LineFilter> filter;
  if (!filtered->texts.empty()) filter.emplace(prefix, filtered->texts);
  tees_.push_back(std::unique_ptr<Tee>(new Tee{std::move(read_end), std::move(log),
                                               LinePrefixer(console->colored() ? Colored(prefix, local_rank) : prefix),
                                               console, std::move(filter), &filtered->log, kAllBytes}));
  return write_end;
}

void Output::AppendTo(std::vector<pollfd>* fds) const {
  for (const auto& tee : tees_) fds->push_back({tee->console->waiting() ? -1 : tee->pipe.get(), POLLIN, 0});
  for (const Console* console : {out_.get(), err_.get()}) {
    fds->push_back({console && console->waiting() ? console->fd() : -1, POLLOUT, 0});
  }
}

void Output::Serve(const pollfd* fds) {
  if (idle()) return;
  const HeldSignals held;
  for (const auto& tee : tees_) {
    // A stream that was served before this one may have filled the console.
    if ((fds++)->revents != 0 && !tee->console->waiting()) Read(tee.get());
  }
  for (Console* console : {out_.get(), err_.get()}) {
    if (console && console->waiting()) WriteLines(console);
  }
  RemoveEnded();
}

void Output::Read(Tee* tee) {
  const size_t most = static_cast<size_t>(std::min<int64_t>(tee->left, static_cast<int64_t>(buffer_.size())));
  const ssize_t n = read(tee->pipe.get(), buffer_.data(), most);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    const absl::string_view text(buffer_.data(), static_cast<size_t>(n));
    if (!WriteLog(&tee->log, text)) incomplete_.insert(tee->console);
    tee->lines.Feed(text, tee->console->lines());
    std::string kept;
    if (tee->filter) tee->filter->Feed(text, &kept);
    WriteLog(tee->filtered, kept);
    if (tee->left != kAllBytes) tee->left -= n;
  }
  if (n <= 0 || tee->left == 0) End(tee);
  WriteLines(tee->console);
}

void Output::End(Tee* tee) {
  tee->lines.Finish(tee->console->lines());
  std::string kept;
  if (tee->filter) tee->filter->Finish(&kept);
  WriteLog(tee->filtered, kept);
  tee->pipe.Close();
}

void Output::RemoveEnded() {
  tees_.erase(std::remove_if(tees_.begin(), tees_.end(), [](const auto& tee) { return !tee->pipe.valid(); }),
              tees_.end());
}

// Returns whether `text` is in the file. After an error the file gets no more.
bool Output::WriteLog(LogFile* log, absl::string_view text) {
  if (text.empty()) return true;
  if (!log->fd.valid()) return false;
  const int error = WriteAll(log->fd.get(), text);
  if (error == 0) return true;
  log->fd.Close();
  Notice(absl::StrCat("log file ", Printable(log->path), " ends here: ", strerror(error)));
  return false;
}

void Output::WriteError(int attempt, int local_rank, absl::string_view error) {
  if (folder_.empty() || error.empty()) return;
  absl::StatusOr<LogFile> file = CreateAttemptFile(folder_, attempt, absl::StrCat(local_rank, "/error.json"));
  if (file.ok()) {
    WriteLog(&*file, error);
  } else {
    Notice(absl::StripPrefix(file.status().message(), "launch: "));
  }
}

// A rank writes to a file that is only redirected itself, and may ignore the error.
void Output::CheckDisk() {
  struct statvfs disk;
  bool redirects = false;
  for (int rank = 0; rank < options_.nproc_per_node; ++rank) redirects |= IsOn(rank, options_.redirects);
  if (!redirects || disk_was_full_ || statvfs(folder_.c_str(), &disk) != 0 || disk.f_bavail > 0) return;
  disk_was_full_ = true;
  Notice(absl::StrCat("the disk of ", Printable(folder_), " is full, so the files of ranks in it may end early"));
}

void Output::WriteLines(Console* console) {
  const int error = console->Write();
  if (error == 0) return;
  Notice(absl::StrCat(console == out_.get() ? "stdout" : "stderr",
                      " shows no more output of the ranks: ", strerror(error), "; it goes on in ", Printable(folder_),
                      incomplete_.count(console) == 0 ? "" : ", except for the files that have ended"));
}

void Output::StopAtWhatIsThere() {
  const HeldSignals held;
  CheckDisk();
  for (const auto& tee : tees_) {
    int bytes = 0;
    tee->left = ioctl(tee->pipe.get(), FIONREAD, &bytes) == 0 ? bytes : 0;
    if (tee->left > 0) continue;
    End(tee.get());
    WriteLines(tee->console);
  }
  RemoveEnded();
}

bool Output::idle() const {
  const auto waits = [](const Console* console) { return console && console->waiting(); };
  return tees_.empty() && !waits(out_.get()) && !waits(err_.get());
}

void Output::DiscardConsoles() {
  for (Console* console : {out_.get(), err_.get()}) {
    if (console) console->Discard();
  }
}

std::string Output::StderrPath(int local_rank) const {
  const auto found = stderr_paths_.find(local_rank);
  return found == stderr_paths_.end() ? "" : found->second;
}

}  // namespace lockstep::launch
