// Shows a run's progress: lines and a progress bar for people, JSON lines and TensorBoard's curves for programs.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_REPORTER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_REPORTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/event_file.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/program/display.h"
#include "lockstep/examples/program/json_lines.h"

namespace lockstep::examples::imagenet {

struct StepReport {
  int64_t epoch = 0;  // from 0, as in Python's example
  int64_t batch = 0;  // of this epoch, from 1
  int64_t batches = 0;
  int64_t step = 0;    // number of batches in the whole run so far
  int64_t shares = 1;  // shares of the images, which the ranks process equally fast. The meters show one share
  double lr = 0;
};

// Standard output gets a line for every `print_freq`th batch, as in Python's example, and for a batch that ends 5 s
// after the last line. During a longer batch it gets a line with the time. On a terminal it gets a bar instead, and a
// line for each epoch. The JSON file gets one object a line: {"event": "step", ...}, "validation" and "epoch". Only
// rank 0 has a reporter.
class Reporter {
 public:
  // `append` keeps the contents of the JSON file. Returns OutputFile's errors, which name the flag and the file.
  static absl::StatusOr<Reporter> Create(const TrainConfig& config, bool append);

  void Say(absl::string_view line) { display_.Say(line); }
  void Warn(absl::string_view line) { display_.Warn(line); }

  // Prints that something begins that may take long, and repeats the line as Display::Await() does.
  void Begin(absl::string_view line) {
    display_.Say(line);
    display_.Await(line);
  }

  // Call these before the first batch of a pass, which may take long. They show an empty bar on a terminal, and
  // otherwise a line in the first pass.
  void BeginEpoch(int64_t epoch, int64_t done, int64_t all);
  void BeginTest(int64_t all);

  absl::Status Step(const StepReport& report, const PassMeters& meters);
  // Shows a batch of a validation as Step() does, without writing to a file.
  void Test(const StepReport& report, const PassMeters& meters);
  absl::Status Validation(int64_t epoch, int64_t step, const PassMeters& meters);
  // Reports the end of an epoch. `last` is the report of its last batch. `meters` show the images of all ranks.
  absl::Status Epoch(const StepReport& last, double images_per_second, const PassMeters& meters);

  // Closes the files.
  absl::Status Close();

 private:
  Reporter(int64_t print_freq, JsonLines json, std::optional<EventFile> events)
      : print_freq_(print_freq), json_(std::move(json)), events_(std::move(events)) {}
  bool IsDue(const StepReport& report) const;
  void BeginPass(const std::string& prefix, int64_t done, int64_t all);
  void Show(const std::string& prefix, const StepReport& report, const PassMeters& meters);
  absl::Status Curve(absl::string_view tag, int64_t step, double value);

  int64_t print_freq_;
  bool is_first_pass_ = true;
  absl::Time last_line_;
  Display display_;
  JsonLines json_;
  std::optional<EventFile> events_;
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_REPORTER_H_
