// Writes a Chrome trace of some steps of a run.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_STEP_TRACE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_STEP_TRACE_H_

#include <torch/csrc/autograd/profiler_legacy.h>

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/examples/program/output_file.h"

namespace lockstep::examples::imagenet {

// Runs LibTorch's operator profiler for `steps` steps after the first `begin`, on this thread and its backward passes.
// The trace is kept in memory until its last step, because the profiler does not report write errors.
//
//   while (...) {
//     Train();
//     LOCKSTEP_RETURN_IF_ERROR(trace->AfterStep());
//   }
//   LOCKSTEP_RETURN_IF_ERROR(trace->Finish());
class StepTrace {
 public:
  // Opens --trace-file=`path`. This function and the following ones return OutputFile's errors.
  static absl::StatusOr<std::unique_ptr<StepTrace>> Create(const std::string& path, int64_t begin, int64_t steps);
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call it after each step of the run.
  absl::Status AfterStep();

  // Writes the trace if the run ended before the last step of the trace.
  absl::Status Finish();

  // True if all steps are in the file.
  bool complete() const { return step_ >= begin_ + steps_; }
  // The number of calls of AfterStep().
  int64_t steps() const { return step_; }

 private:
  StepTrace(OutputFile file, int64_t begin, int64_t steps) : file_(std::move(file)), begin_(begin), steps_(steps) {}

  OutputFile file_;
  const int64_t begin_, steps_;
  int64_t step_ = 0;
  std::ostringstream events_;
  std::unique_ptr<torch::autograd::profiler::RecordProfile> profile_;  // after the members that it borrows
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_STEP_TRACE_H_
