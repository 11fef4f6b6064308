#include "lockstep/examples/imagenet/step_trace.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::examples::imagenet {

using torch::autograd::profiler::RecordProfile;

absl::StatusOr<std::unique_ptr<StepTrace>> StepTrace::Create(const std::string& path, int64_t begin, int64_t steps) {
  LOCKSTEP_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(absl::StrCat("--trace-file=", path), path));
  return std::unique_ptr<StepTrace>(new StepTrace(std::move(file), begin, steps));
}

absl::Status StepTrace::AfterStep() {
  if (++step_ == begin_) {
    return TorchStatus("--trace-file", [&] { profile_ = std::make_unique<RecordProfile>(events_); });
  }
  return step_ == begin_ + steps_ ? Finish() : absl::OkStatus();
}

absl::Status StepTrace::Finish() {
  if (!profile_) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("--trace-file", [&] { profile_.reset(); }));
  LOCKSTEP_RETURN_IF_ERROR(file_.Write(events_.str()));
  return file_.Close();
}

}  // namespace lockstep::examples::imagenet
