#include "lockstep/examples/fashion_mnist/comparison/ways.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::examples {
namespace {

// Where a process writes its metrics, which the one that started it reads.
constexpr char kMetricsVariable[] = "FASHION_MNIST_METRICS_FILE";

struct Outcome {
  double loss = 0, accuracy = 0, images_per_second = 0, seconds = 0;
};

absl::StatusOr<Outcome> ReadOutcome(const std::string& path) {
  Outcome outcome;
  bool done = false;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) continue;
    if (json["event"] == "epoch") outcome.seconds += json["seconds"].get<double>();
    if (json["event"] != "done") continue;
    done = true;
    outcome.loss = json["loss"];
    outcome.accuracy = json["accuracy"];
    outcome.images_per_second = json["examples_per_second"];
  }
  if (!done) return absl::InternalError(absl::StrCat(path, ": the run has left no result"));
  return outcome;
}

absl::StatusOr<std::string> TemporaryFile() {
  const char* const folder = std::getenv("TMPDIR");
  std::string path = absl::StrCat(folder ? folder : "/tmp", "/fashion_mnist.XXXXXX");
  const UniqueFd file(mkstemp(&path[0]));
  if (!file.valid()) return absl::PermissionDeniedError(absl::StrCat(path, " cannot be made"));
  return path;
}

absl::Status TrainInNewProcesses(const Way& way, const std::string& metrics) {
  launch::SpawnOptions options;
  options.environment[kMetricsVariable] = metrics;
  const auto train = [&](int) {
    TrainConfig config = way.config;
    config.metrics_file = std::getenv(kMetricsVariable);
    return way.train(config);
  };
  return Annotate(launch::Spawn(way.processes, train, options), way.name);
}

absl::StatusOr<Outcome> Measure(const Way& way) {
  std::printf("--parallel=%s\n", way.name.c_str());
  std::fflush(stdout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string metrics, TemporaryFile());
  const absl::Status status = TrainInNewProcesses(way, metrics);
  const absl::StatusOr<Outcome> outcome = ReadOutcome(metrics);
  unlink(metrics.c_str());
  LOCKSTEP_RETURN_IF_ERROR(status);
  return outcome;
}

}  // namespace

absl::Status Compare(const std::vector<Way>& ways) {
  const bool is_new_process = std::getenv(kMetricsVariable) != nullptr;
  std::string table = "parallel   processes   train loss   test accuracy    images/s   seconds\n";
  for (const Way& way : ways) {
    if (is_new_process) {  // started for this way, where it stays, or for a later one
      LOCKSTEP_RETURN_IF_ERROR(TrainInNewProcesses(way, ""));
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Outcome outcome, Measure(way));
    absl::StrAppendFormat(&table, "%8s   %9d   %10.4f   %13.4f   %9.0f   %7.1f\n", way.name, way.processes,
                          outcome.loss, outcome.accuracy, outcome.images_per_second, outcome.seconds);
  }
  std::printf("%s", table.c_str());
  return absl::OkStatus();
}

}  // namespace lockstep::examples
