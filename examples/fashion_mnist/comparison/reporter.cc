#include "lockstep/examples/fashion_mnist/comparison/reporter.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {
namespace {

nlohmann::ordered_json EpochJson(const char* event, const EpochReport& report) {
  return {{"event", event},
          {"epoch", report.epoch},
          {"step", report.step},
          {"loss", report.loss},
          {"accuracy", report.accuracy},
          {"examples_per_second", report.examples_per_second},
          {"seconds", absl::ToDoubleSeconds(report.training_time)}};
}

}  // namespace

absl::StatusOr<Reporter> Reporter::Create(const std::string& metrics_file) {
  LOCKSTEP_ASSIGN_OR_RETURN(JsonLines metrics, JsonLines::Create("metrics_file", metrics_file, /*append=*/false));
  return Reporter(std::move(metrics));
}

absl::Status Reporter::Step(const StepReport& report) {
  if (display_.terminal()) {
    display_.Bar(absl::StrCat("epoch ", report.epoch), report.step, report.steps,
                 absl::StrFormat("loss %.4f  %.0f images/s", report.loss, report.examples_per_second));
  } else if (report.step * 10 / report.steps != (report.step - 1) * 10 / report.steps) {
    Say(absl::StrFormat("epoch %d  step %d/%d  loss %.4f  %.0f images/s", report.epoch, report.step, report.steps,
                        report.loss, report.examples_per_second));
  }
  display_.Await(absl::StrFormat("epoch %d  step %d/%d  next step ...", report.epoch, report.step, report.steps));
  return metrics_.Write(nlohmann::ordered_json({{"event", "step"},
                                                {"epoch", report.epoch},
                                                {"step", report.step},
                                                {"loss", report.loss},
                                                {"examples_per_second", report.examples_per_second}})
                            .dump());
}

absl::Status Reporter::Epoch(const EpochReport& report) {
  if (!heading_shown_) Say("epoch   train loss   test accuracy    images/s   seconds");
  heading_shown_ = true;
  Say(absl::StrFormat("%5d   %10.4f   %13.4f   %9.0f   %7.1f", report.epoch, report.loss, report.accuracy,
                      report.examples_per_second, absl::ToDoubleSeconds(report.training_time)));
  return metrics_.Write(EpochJson("epoch", report).dump());
}

absl::Status Reporter::Done(const EpochReport& last) {
  Say(absl::StrFormat("done: test accuracy %.4f after %d epochs", last.accuracy, last.epoch));
  LOCKSTEP_RETURN_IF_ERROR(metrics_.Write(EpochJson("done", last).dump()));
  return metrics_.Close();
}

}  // namespace lockstep::examples
