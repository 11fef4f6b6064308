// Shows a run's progress: lines and a progress bar for people, JSON lines, TensorBoard's curves and a Chrome trace for
// programs.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_REPORTER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_REPORTER_H_

#include <torch/csrc/autograd/profiler_legacy.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/output_file.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/program/display.h"
#include "lockstep/tensorboard/summary_writer.h"

namespace lockstep::examples::imagenet {

// Runs LibTorch's operator profiler for --trace-steps steps after the first --trace-begin, on this thread and its
// backward passes. The trace is kept in memory until its last step, because the profiler does not report write errors.
// The functions return OutputFile's errors.
class StepTrace {
 public:
  // Opens --trace-file.
  static absl::StatusOr<std::unique_ptr<StepTrace>> Create(const TrainConfig& config) {
    const std::string name = absl::StrCat("--trace-file=", config.trace_file);
    LOCKSTEP_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(name, config.trace_file));
    return std::unique_ptr<StepTrace>(new StepTrace(config, std::move(file)));
  }

  // Call it after each step of the run.
  absl::Status AfterStep() {
    if (++step_ == config_.trace_begin) {
      return TorchStatus("--trace-file", [&] { profile_ = std::make_unique<Profile>(events_); });
    }
    return step_ == config_.trace_begin + config_.trace_steps ? Finish() : absl::OkStatus();
  }

  // Writes the steps so far, and warns if the run has ended before the last step of the trace.
  absl::Status Finish() {
    if (profile_) {
      LOCKSTEP_RETURN_IF_ERROR(TorchStatus("--trace-file", [&] { profile_.reset(); }));
      LOCKSTEP_RETURN_IF_ERROR(file_.Write(events_.str()));
      LOCKSTEP_RETURN_IF_ERROR(file_.Close());
    }
    if (step_ >= config_.trace_begin + config_.trace_steps) return absl::OkStatus();
    std::cerr << absl::StrCat("warning: --trace-file=", config_.trace_file, ": the run ended after ", step_,
                              " steps, so the trace lacks steps; --trace-begin=", config_.trace_begin,
                              " and --trace-steps=", config_.trace_steps, " say which it has\n");
    return absl::OkStatus();
  }

 private:
  using Profile = torch::autograd::profiler::RecordProfile;

  StepTrace(const TrainConfig& config, OutputFile file) : config_(config), file_(std::move(file)) {}

  const TrainConfig config_;
  OutputFile file_;
  int64_t step_ = 0;
  std::ostringstream events_;
  std::unique_ptr<Profile> profile_;  // after the members that it borrows
};

struct StepReport {
  std::string pass;   // "Epoch: [0]" or "Test: "
  int64_t epoch = 0;  // from 0, as in Python's example
  int64_t batch = 0;  // of this pass, from 1
  int64_t batches = 0;
  int64_t step = 0;    // number of batches in the whole run so far
  int64_t shares = 1;  // shares of the images, which the ranks process equally fast. The meters show one share
  double lr = 0;
};

// Standard output gets a line for every --print-freq'th batch, as in Python's example, and for a batch that ends 5 s
// after the last line. During a longer batch it gets a line with the time. On a terminal it gets a bar instead, and a
// line for each epoch. The JSON file gets one object a line: {"event": "step", ...}, "validation" and "epoch". Only
// rank 0 has a reporter.
class Reporter {
 public:
  // `append` keeps the contents of the JSON file. `begins`: the run begins here, so there may be a trace. With --dry-run
  // there are no files. Returns OutputFile's errors, which name the flag and the file.
  static absl::StatusOr<std::unique_ptr<Reporter>> Create(const TrainConfig& config, bool append, bool begins) {
    std::unique_ptr<Reporter> reporter(new Reporter(config.print_freq));
    const std::string &json = config.json_file, &events = config.tensorboard_dir;
    if (config.dry_run) return reporter;
    if (!json.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(reporter->json_, OutputFile::Create(absl::StrCat("--json-file=", json), json, append));
    }
    if (!events.empty()) {
      auto made = tensorboard::SummaryWriter::Create(events);
      if (!made.ok()) return Annotate(made.status(), "--tensorboard-dir");
      reporter->events_ = *std::move(made);
    }
    if (config.trace_file.empty() || !begins) return reporter;
    LOCKSTEP_ASSIGN_OR_RETURN(reporter->trace_, StepTrace::Create(config));
    return reporter;
  }

  void Say(absl::string_view line) { display_.Say(line); }
  void Warn(absl::string_view line) { display_.Warn(line); }

  // Prints that something begins that may take long, and repeats the line as Display::Await() does.
  void Begin(absl::string_view line) {
    display_.Say(line);
    display_.Await(line);
  }

  // Call it before the first batch of a pass, which may take long. It shows an empty bar on a terminal, and otherwise a
  // line in the first pass. `report` is of the batch before.
  void BeginPass(const StepReport& report) {
    const std::string line = absl::StrCat(report.pass, "[", report.batch, "/", report.batches, "]\tfirst batch ...");
    if (display_.terminal() && report.batches > 0) {
      display_.Bar(report.pass, report.batch, report.batches, "first batch ...");
    } else if (is_first_pass_) {
      Say(line);
    }
    display_.Await(line);
    is_first_pass_ = false;
    last_line_ = absl::Now();
  }

  // Shows a batch of a pass.
  void Show(const StepReport& report, const PassMeters& meters) {
    const std::string& pass = report.pass;
    const auto left = static_cast<double>(report.batches - report.batch);
    const std::string pace =
        absl::StrFormat("%.1f images/s  data %.0f %%  ETA %s", meters.ImagesPerSecond(report.shares),
                        100 * meters.DataShare(), Clock(absl::Seconds(meters.time.average() * left)));
    if (display_.terminal()) {
      display_.Bar(pass, report.batch, report.batches,
                   absl::StrFormat("loss %.4f  acc@1 %.2f  %s", meters.loss.average(), meters.top1.average(), pace));
    } else if (IsDue(report) || absl::Now() - last_line_ > absl::Seconds(5)) {
      last_line_ = absl::Now();
      const std::string line = ProgressLine(pass, report.batch, report.batches,
                                            {&meters.time, &meters.data, &meters.loss, &meters.top1, &meters.top5});
      Say(absl::StrCat(line, "\t", pace, "  elapsed ", Clock(absl::Seconds(meters.time.sum()))));
    }
    display_.Await(absl::StrCat(pass, "[", report.batch, "/", report.batches, "]\t",
                                left == 0 ? "after the last batch ..." : "next batch ..."));
  }

  // Shows a batch of an epoch, and writes it to the files.
  absl::Status Step(const StepReport& report, const PassMeters& meters) {
    Show(report, meters);
    if (!IsDue(report)) return absl::OkStatus();
    const double loss = meters.loss.value(), images_per_second = meters.ImagesPerSecond(report.shares);
    LOCKSTEP_RETURN_IF_ERROR(Curve("train/loss", report.step, loss));
    LOCKSTEP_RETURN_IF_ERROR(Curve("train/lr", report.step, report.lr));
    LOCKSTEP_RETURN_IF_ERROR(Curve("train/images_per_second", report.step, images_per_second));
    Json step = {{"event", "step"}, {"epoch", report.epoch}, {"batch", report.batch}, {"step", report.step}};
    step.update(Figures(loss, meters.top1.value(), report.lr, images_per_second, meters.DataShare()));
    return Write(step);
  }

  // Call it after each step of the run, for the trace.
  absl::Status EndStep() { return trace_ ? trace_->AfterStep() : absl::OkStatus(); }

  // Reports the end of an epoch. `last` is the report of its last batch. `meters` show the images of all ranks.
  absl::Status Epoch(const StepReport& last, double images_per_second, const PassMeters& meters) {
    const double loss = meters.loss.average(), acc1 = meters.top1.average(), data_share = meters.DataShare();
    if (display_.terminal()) {
      Say(absl::StrFormat("%s  loss %.4f  acc@1 %.2f  %.1f images/s  data %.0f %%  took %s", last.pass, loss, acc1,
                          images_per_second, 100 * data_share, Clock(absl::Seconds(meters.time.sum()))));
    }
    Json epoch = {{"event", "epoch"}, {"epoch", last.epoch}, {"step", last.step}};
    epoch.update(Figures(loss, acc1, last.lr, images_per_second, data_share));
    return Write(epoch);
  }

  absl::Status Validation(int64_t epoch, int64_t step, const PassMeters& meters) {
    const double loss = meters.loss.average(), acc1 = meters.top1.average(), acc5 = meters.top5.average();
    Say(absl::StrFormat(" *   Acc@1 %.3f Acc@5 %.3f Loss %.4f", acc1, acc5, loss));
    LOCKSTEP_RETURN_IF_ERROR(Curve("val/loss", step, loss));
    LOCKSTEP_RETURN_IF_ERROR(Curve("val/acc1", step, acc1));
    LOCKSTEP_RETURN_IF_ERROR(Curve("val/acc5", step, acc5));
    Json validation = {{"event", "validation"}, {"epoch", epoch}, {"step", step}, {"loss", loss}};
    validation.update({{"acc1", acc1}, {"acc5", acc5}, {"images", meters.loss.count()}});
    return Write(validation);
  }

  // Closes the files.
  absl::Status Close() {
    absl::Status status = trace_ ? trace_->Finish() : absl::OkStatus();
    if (json_) status.Update(json_->Close());
    if (events_) status.Update(Annotate(events_->Close(), "--tensorboard-dir"));
    return status;
  }

 private:
  using Json = nlohmann::ordered_json;

  explicit Reporter(int64_t print_freq) : print_freq_(print_freq) {}

  bool IsDue(const StepReport& report) const {
    return report.batch % print_freq_ == 0 || report.batch == report.batches;
  }

  static Json Figures(double loss, double acc1, double lr, double images_per_second, double data_share) {
    Json figures = {{"loss", loss}, {"acc1", acc1}, {"lr", lr}};
    figures.update({{"images_per_second", images_per_second}, {"data_share", data_share}});
    return figures;
  }

  absl::Status Write(const Json& object) {
    return json_ ? json_->Write(absl::StrCat(object.dump(), "\n")) : absl::OkStatus();
  }

  absl::Status Curve(absl::string_view tag, int64_t step, double value) {
    return events_ ? Annotate(events_->AddScalar(tag, value, step), "--tensorboard-dir") : absl::OkStatus();
  }

  const int64_t print_freq_;
  bool is_first_pass_ = true;
  absl::Time last_line_;
  Display display_;
  std::optional<OutputFile> json_;
  std::optional<tensorboard::SummaryWriter> events_;
  std::unique_ptr<StepTrace> trace_;
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_REPORTER_H_
