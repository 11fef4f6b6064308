#include "lockstep/examples/imagenet/validation.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::examples::imagenet {

absl::Status Validation::Run() {
  const Input& input = *state_.input;
  LOCKSTEP_RETURN_IF_ERROR(state_.learner->BeginEvaluation());
  meters_ = PassMeters(input.parts());  // starts the time
  report_.batches = input.ValidationBatches();
  report_.shares = group_->size();
  if (state_.reporter) state_.reporter->BeginTest(report_.batches);
  for (int64_t virtual_rank = input.first(); virtual_rank < input.last(); ++virtual_rank) {
    LOCKSTEP_RETURN_IF_ERROR(EvaluateShare(virtual_rank));
  }
  const at::Tensor sums = meters_.TakeSums();
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(sums));
  meters_.Show(sums);
  if (state_.config.max_skipped == 0 && meters_.loss.count() != input.validation_images()) {
    return absl::InternalError(
        absl::StrCat("validated ", meters_.loss.count(), " images, there are ", input.validation_images()));
  }
  return absl::OkStatus();
}

absl::Status Validation::EvaluateShare(int64_t virtual_rank) {
  data::Loader& loader = state_.input->validation();
  LOCKSTEP_RETURN_IF_ERROR(state_.input->StartValidation(virtual_rank));
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(group_->failure());
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<data::Example> batch, loader.Next());
    if (!batch) break;
    LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, state_.learner->Evaluate(*batch));
    meters_.Count(virtual_rank, result);
    meters_.Update(result, waited_ + loader.waited());
    ++report_.batch;
    if (state_.reporter) state_.reporter->Test(report_, meters_);
  }
  waited_ += loader.waited();
  state_.PrintSkipped(loader);
  return absl::OkStatus();
}

absl::Status Validation::Report() {
  if (!state_.reporter) return absl::OkStatus();
  const int64_t epoch = state_.progress.epoch, trained = state_.config.evaluate ? epoch : epoch + 1;
  return state_.reporter->Validation(epoch, trained * state_.input->BatchesPerEpoch(), meters_);
}

}  // namespace lockstep::examples::imagenet
