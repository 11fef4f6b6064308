#include "lockstep/examples/imagenet/reporter.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"

namespace lockstep::examples::imagenet {

using Json = nlohmann::ordered_json;

absl::StatusOr<Reporter> Reporter::Create(const TrainConfig& config, bool append) {
  LOCKSTEP_ASSIGN_OR_RETURN(JsonLines json, JsonLines::Create("json-file", config.json_file, append));
  std::optional<EventFile> events;
  if (!config.tensorboard_dir.empty()) {
    absl::StatusOr<EventFile> made = EventFile::Create(config.tensorboard_dir);
    if (!made.ok()) return Annotate(made.status(), "--tensorboard-dir");
    events = *std::move(made);
  }
  return Reporter(config.print_freq, std::move(json), std::move(events));
}

bool Reporter::IsDue(const StepReport& report) const {
  return report.batch % print_freq_ == 0 || report.batch == report.batches;
}

void Reporter::Show(const std::string& prefix, const StepReport& report, const PassMeters& meters) {
  const auto left = static_cast<double>(report.batches - report.batch);
  const absl::Duration eta = absl::Seconds(meters.time.average() * left);
  const std::string pace = absl::StrFormat("%.1f images/s  data %.0f %%  ETA %s", meters.ImagesPerSecond(report.shares),
                                           100 * meters.DataShare(), Clock(eta));
  if (display_.terminal()) {
    display_.Bar(prefix, report.batch, report.batches,
                 absl::StrFormat("loss %.4f  acc@1 %.2f  %s", meters.loss.average(), meters.top1.average(), pace));
  } else if (IsDue(report) || absl::Now() - last_line_ > absl::Seconds(5)) {
    last_line_ = absl::Now();
    const std::string line = ProgressLine(prefix, report.batch, report.batches,
                                          {&meters.time, &meters.data, &meters.loss, &meters.top1, &meters.top5});
    Say(absl::StrCat(line, "\t", pace, "  elapsed ", Clock(absl::Seconds(meters.time.sum()))));
  }
  display_.Await(absl::StrCat(prefix, "[", report.batch, "/", report.batches, "]\t",
                              report.batch == report.batches ? "after the last batch ..." : "next batch ..."));
}

void Reporter::BeginPass(const std::string& prefix, int64_t done, int64_t all) {
  const std::string line = absl::StrCat(prefix, "[", done, "/", all, "]\tfirst batch ...");
  if (display_.terminal() && all > 0) {
    display_.Bar(prefix, done, all, "first batch ...");
  } else if (is_first_pass_) {
    Say(line);
  }
  display_.Await(line);
  is_first_pass_ = false;
  last_line_ = absl::Now();
}

absl::Status Reporter::Step(const StepReport& report, const PassMeters& meters) {
  Show(absl::StrCat("Epoch: [", report.epoch, "]"), report, meters);
  if (!IsDue(report)) return absl::OkStatus();
  const double images_per_second = meters.ImagesPerSecond(report.shares), data_share = meters.DataShare();
  LOCKSTEP_RETURN_IF_ERROR(Curve("train/loss", report.step, meters.loss.value()));
  LOCKSTEP_RETURN_IF_ERROR(Curve("train/lr", report.step, report.lr));
  LOCKSTEP_RETURN_IF_ERROR(Curve("train/images_per_second", report.step, images_per_second));
  return json_.Write(Json({{"event", "step"},
                           {"epoch", report.epoch},
                           {"batch", report.batch},
                           {"step", report.step},
                           {"loss", meters.loss.value()},
                           {"acc1", meters.top1.value()},
                           {"lr", report.lr},
                           {"images_per_second", images_per_second},
                           {"data_share", data_share}})
                         .dump());
}

void Reporter::BeginEpoch(int64_t epoch, int64_t done, int64_t all) {
  BeginPass(absl::StrCat("Epoch: [", epoch, "]"), done, all);
}

void Reporter::BeginTest(int64_t all) { BeginPass("Test: ", 0, all); }

void Reporter::Test(const StepReport& report, const PassMeters& meters) { Show("Test: ", report, meters); }

absl::Status Reporter::Validation(int64_t epoch, int64_t step, const PassMeters& meters) {
  Say(absl::StrFormat(" *   Acc@1 %.3f Acc@5 %.3f Loss %.4f", meters.top1.average(), meters.top5.average(),
                      meters.loss.average()));
  LOCKSTEP_RETURN_IF_ERROR(Curve("val/loss", step, meters.loss.average()));
  LOCKSTEP_RETURN_IF_ERROR(Curve("val/acc1", step, meters.top1.average()));
  LOCKSTEP_RETURN_IF_ERROR(Curve("val/acc5", step, meters.top5.average()));
  return json_.Write(Json({{"event", "validation"},
                           {"epoch", epoch},
                           {"step", step},
                           {"loss", meters.loss.average()},
                           {"acc1", meters.top1.average()},
                           {"acc5", meters.top5.average()},
                           {"images", meters.loss.count()}})
                         .dump());
}

absl::Status Reporter::Epoch(const StepReport& last, double images_per_second, const PassMeters& meters) {
  const double loss = meters.loss.average(), acc1 = meters.top1.average(), data_share = meters.DataShare();
  if (display_.terminal()) {
    Say(absl::StrFormat("Epoch: [%d]  loss %.4f  acc@1 %.2f  %.1f images/s  data %.0f %%  took %s", last.epoch, loss,
                        acc1, images_per_second, 100 * data_share, Clock(absl::Seconds(meters.time.sum()))));
  }
  return json_.Write(Json({{"event", "epoch"},
                           {"epoch", last.epoch},
                           {"step", last.step},
                           {"loss", loss},
                           {"acc1", acc1},
                           {"lr", last.lr},
                           {"images_per_second", images_per_second},
                           {"data_share", data_share}})
                         .dump());
}

absl::Status Reporter::Curve(absl::string_view tag, int64_t step, double value) {
  return events_ ? Annotate(events_->Scalar(tag, step, value), "--tensorboard-dir") : absl::OkStatus();
}

absl::Status Reporter::Close() {
  LOCKSTEP_RETURN_IF_ERROR(json_.Close());
  return events_ ? Annotate(events_->Close(), "--tensorboard-dir") : absl::OkStatus();
}

}  // namespace lockstep::examples::imagenet
