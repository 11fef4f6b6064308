#include "lockstep/examples/fashion_mnist/reporter.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
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

absl::StatusOr<Reporter> Reporter::Create(const std::string& metrics_file, bool append) {
  Reporter reporter;
  reporter.terminal_ = isatty(STDOUT_FILENO);
  reporter.metrics_path_ = metrics_file;
  if (!metrics_file.empty()) {
    reporter.metrics_.open(metrics_file, append ? std::ios::app : std::ios::trunc);
    if (!reporter.metrics_)
      return absl::PermissionDeniedError(absl::StrCat("--metrics_file=", metrics_file, " cannot be written"));
  }
  return reporter;
}

void Reporter::Say(const std::string& line) {
  EraseBar();
  absl::PrintF("%s\n", line);
  std::fflush(stdout);
}

absl::Status Reporter::WriteLine(const std::string& json) {
  if (metrics_path_.empty()) return absl::OkStatus();
  metrics_ << json << std::endl;
  if (!metrics_) return absl::DataLossError(absl::StrCat("--metrics_file=", metrics_path_, " cannot be written"));
  return absl::OkStatus();
}

absl::Status Reporter::Step(const StepReport& report) {
  if (terminal_) {
    ShowBar(report);
  } else if (report.step * 10 / report.steps != (report.step - 1) * 10 / report.steps) {
    Say(absl::StrFormat("epoch %d  step %d/%d  loss %.4f  %.0f images/s", report.epoch, report.step, report.steps,
                        report.loss, report.examples_per_second));
  }
  return WriteLine(nlohmann::ordered_json({{"event", "step"},
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
  return WriteLine(EpochJson("epoch", report).dump());
}

absl::Status Reporter::Done(const EpochReport& last) {
  Say(absl::StrFormat("done: test accuracy %.4f after %d epochs", last.accuracy, last.epoch));
  return WriteLine(EpochJson("done", last).dump());
}

void Reporter::ShowBar(const StepReport& report) {
  const absl::Time now = absl::Now();
  if (report.step != report.steps && now - last_bar_ < absl::Milliseconds(100)) return;
  last_bar_ = now;
  bar_shown_ = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(kWidth * report.step / report.steps);
  absl::PrintF("\r\x1b[Kepoch %d [%s%s] %d/%d  loss %.4f  %.0f images/s", report.epoch, std::string(filled, '#'),
               std::string(kWidth - filled, '.'), report.step, report.steps, report.loss, report.examples_per_second);
  std::fflush(stdout);
}

void Reporter::EraseBar() {
  if (bar_shown_) absl::PrintF("\r\x1b[K");
  bar_shown_ = false;
}

}  // namespace lockstep::examples
