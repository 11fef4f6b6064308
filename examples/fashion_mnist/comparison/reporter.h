// Shows a run's progress: a progress bar and a table for people, and JSON lines for programs. Only rank 0 reports.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_REPORTER_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_REPORTER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/examples/program/display.h"
#include "lockstep/examples/program/json_lines.h"

namespace lockstep::examples {

struct StepReport {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;   // of this epoch, from 1
  int64_t steps = 0;  // in this epoch
  double loss = 0;    // mean over the global batch
  double examples_per_second = 0;
};

struct EpochReport {
  int64_t epoch = 0;
  int64_t step = 0;  // the last one
  double loss = 0;   // mean over the epoch's steps
  double accuracy = 0;
  double examples_per_second = 0;
  absl::Duration training_time;
};

// Standard output gets a heading, a line for each epoch, and the lines of Say(). Progress within an epoch is a bar on a
// terminal, and otherwise ten lines.
//
// The metrics file gets one JSON object a line: {"event": "step", "epoch", "step", "loss", "examples_per_second"},
// {"event": "epoch", the same, "accuracy" and "seconds"} and {"event": "done", the same for the last epoch}. Numbers
// have all their digits.
class Reporter {
 public:
  // `metrics_file` may be empty.
  static absl::StatusOr<Reporter> Create(const std::string& metrics_file);

  void Say(const std::string& line) { display_.Say(line); }
  void Warn(const std::string& line) { display_.Warn(line); }
  absl::Status Step(const StepReport& report);
  absl::Status Epoch(const EpochReport& report);
  absl::Status Done(const EpochReport& last);

 private:
  explicit Reporter(JsonLines metrics) : metrics_(std::move(metrics)) {}

  Display display_;
  JsonLines metrics_;
  bool heading_shown_ = false;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_REPORTER_H_
