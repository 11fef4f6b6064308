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
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto trace, StepTrace::Create("trace.json", /*begin=*/5, /*steps=*/5));
//   for (int64_t step = 1; ...; ++step) {
//     Train();
//     LOCKSTEP_RETURN_IF_ERROR(trace->AfterStep(step));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(trace->Finish());
class StepTrace {
 public:
  // Opens --trace-file=`path`. This function and the following ones return OutputFile's errors.
  static absl::StatusOr<std::unique_ptr<StepTrace>> Create(const std::string& path, int64_t begin, int64_t steps);
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call it after each step of the run, counted from 1.
  absl::Status AfterStep(int64_t step);

  // Writes the trace if the run ended before the last step of the trace.
  absl::Status Finish();

  // Whether all steps are in the file.
  bool complete() const { return complete_; }

 private:
  StepTrace(OutputFile file, int64_t begin, int64_t steps) : file_(std::move(file)), begin_(begin), steps_(steps) {}

  OutputFile file_;
  const int64_t begin_, steps_;
  bool complete_ = false;
  std::ostringstream events_;
  std::unique_ptr<torch::autograd::profiler::RecordProfile> profile_;  // after the members that it borrows
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_STEP_TRACE_H_
