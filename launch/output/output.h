// Takes the output of the ranks to files and to this process's own output: the options `redirects`, `tee`, `log_dir`
// and `shown_local_ranks` of a launch.
//
// A stream that is only redirected is a file that the rank itself writes. A stream that `tee` names is a pipe: what
// comes out of it goes into a file as it is, and to a Console in whole lines with a prefix. Nothing has a thread: the
// caller polls the pipes together with its other descriptors. While a console's reader does not read, no pipe is read
// that feeds this console, so its ranks wait, and memory is bounded: 64 KiB for a stream, and the lines of 64 KiB for a
// console.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_OUTPUT_H_
#define LOCKSTEP_LAUNCH_OUTPUT_OUTPUT_H_

#include <poll.h>
#include <stdint.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/output/console.h"
#include "lockstep/launch/output/line_filter.h"
#include "lockstep/launch/output/line_prefixer.h"
#include "lockstep/launch/output/log_folder.h"

namespace lockstep::launch {

// A rank's stdout and stderr. Invalid: this process's own.
struct RankOutput {
  UniqueFd out, err;
};

class Output {
 public:
  // Call it before other descriptors are opened, which could take the numbers of closed standard streams. Creates the
  // folder, if a rank needs one. `options` must outlive the object. FailedPrecondition: the folder cannot be created.
  // ResourceExhausted: the disk is full, or there are fewer free descriptors than the ranks need.
  static absl::StatusOr<std::unique_ptr<Output>> Create(const LaunchOptions& options);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // The streams of a rank that is about to start. Close them when it runs. The same errors.
  absl::StatusOr<RankOutput> Open(int attempt, int local_rank);

  // Appends to `fds` what the caller must poll. The number of entries is constant until Serve() is called.
  void AppendTo(std::vector<pollfd>* fds) const;

  // Moves what is there. `fds` is the first of the entries that AppendTo() appended. Does not block, except for writes
  // to files.
  void Serve(const pollfd* fds);

  // After the ranks have ended: no longer waits for the end of a pipe, which a process that a rank left behind may keep
  // open. Of each pipe, only the bytes that it holds now are read.
  void StopAtWhatIsThere();

  // Returns whether all pipes have ended and all lines are written.
  bool idle() const;

  // Gives up on readers that do not read. What the ranks wrote still goes to the files.
  void DiscardConsoles();

  // Writes `error`, unless it is empty, to the rank's error.json, if there is a folder.
  void WriteError(int attempt, int local_rank, absl::string_view error);

  // The file with the rank's stderr; "" if there is none.
  std::string StderrPath(int local_rank) const;

 private:
  // The lines of all ranks that contain one of the texts, for each attempt.
  struct Filtered {
    const std::vector<std::string>& texts;
    const char* name;  // of the file
    LogFile log;
    int attempt;  // of the log; -1: there is none
  };

  struct Tee {
    UniqueFd pipe;
    LogFile log;  // its descriptor is invalid after an error
    LinePrefixer lines;
    Console* console;
    std::optional<LineFilter> filter;
    LogFile* filtered;  // the lines that the filter keeps
    int64_t left;       // bytes that may still be read
  };

  explicit Output(const LaunchOptions& options);
  absl::StatusOr<UniqueFd> OpenStream(int attempt, int local_rank, Streams stream);
  absl::StatusOr<UniqueFd> AddTee(LogFile log, int attempt, int local_rank, bool is_stdout);
  absl::Status OpenFiltered(int attempt, Filtered* filtered);
  std::string PrefixOf(int local_rank) const;
  bool IsShown(int local_rank) const;
  void Read(Tee* tee);
  void End(Tee* tee);
  bool WriteLog(LogFile* log, absl::string_view text);
  void CheckDisk();
  void WriteLines(Console* console);
  void RemoveEnded();
  void Notice(absl::string_view notice) const;

  const LaunchOptions& options_;
  std::string folder_;
  std::unique_ptr<Console> out_, err_;  // null unless a rank's streams are teed
  Filtered filtered_out_, filtered_err_;
  std::vector<std::unique_ptr<Tee>> tees_;
  std::set<const Console*> incomplete_;      // a file of their streams has ended early
  bool disk_was_full_ = false;               // on_notice has said so
  std::map<int, std::string> stderr_paths_;  // by local rank
  std::string buffer_;                       // for reads
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_OUTPUT_H_
