#include "lockstep/tools/launch/internal/flag_values.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/internal/cpu_plan.h"
#include "lockstep/tools/launch/internal/devices.h"

namespace lockstep::launch::internal {
namespace {

constexpr double kMostSeconds = 1e9;  // 30 years; more would not fit in a clock's nanoseconds
constexpr absl::string_view kForwardedSignals[] = {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"};

absl::Status Bad(const GivenFlag& given, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(given.source, "=", Printable(given.value), ": ", why));
}

absl::Status Expected(const GivenFlag& given, absl::string_view expected) {
  return Bad(given, absl::StrCat("expected ", expected));
}

absl::Status SetWhole(const GivenFlag& given, int* number) {
  if (absl::SimpleAtoi(given.value, number)) return absl::OkStatus();
  return Expected(given, "a whole number");
}

absl::Status SetSeconds(const GivenFlag& given, absl::Duration* duration) {
  double seconds;
  if (!absl::SimpleAtod(given.value, &seconds) || !(seconds >= 0 && seconds <= kMostSeconds)) {
    return Expected(given, "seconds, 0 or more, such as 0.5");
  }
  *duration = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status SetRanks(const GivenFlag& given, const std::map<std::string, std::string>& environment,
                      LaunchOptions* options) {
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  const int devices = NvidiaDevices("/dev", visible == environment.end() ? nullptr : visible->second.c_str());
  if (given.value == "gpu" && devices == 0) return Bad(given, "there is no NVIDIA device, or none is visible");
  if (given.value == "gpu" || (given.value == "auto" && devices > 0)) {
    options->nproc_per_node = devices;
  } else if (given.value == "cpu" || given.value == "auto") {
    options->nproc_per_node = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  } else if (!absl::SimpleAtoi(given.value, &options->nproc_per_node)) {
    return Expected(given, "a whole number, cpu for one a core, gpu for one a device, or auto");
  }
  return absl::OkStatus();
}

bool ParseStreams(absl::string_view text, Streams* streams) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return false;
  *streams = static_cast<Streams>(text[0] - '0');
  return true;
}

bool ParseRankStreams(absl::string_view text, RankStreams* streams) {
  *streams = {};
  if (ParseStreams(text, &streams->every_rank)) return true;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, ':');
    int local_rank;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &local_rank) ||
        !ParseStreams(parts[1], &streams->by_local_rank[local_rank])) {
      return false;
    }
  }
  return true;
}

absl::Status SetStreams(const GivenFlag& given, RankStreams* streams) {
  if (ParseRankStreams(given.value, streams)) return absl::OkStatus();
  return Expected(given,
                  "0 for none, 1 for stdout, 2 for stderr or 3 for both, or such a number for each local rank, as in "
                  "0:3,1:2");
}

absl::Status SetShownRanks(const GivenFlag& given, LaunchOptions* options) {
  if (given.value.empty()) return absl::OkStatus();
  for (const absl::string_view entry : absl::StrSplit(given.value, ',')) {
    int local_rank;
    if (!absl::SimpleAtoi(entry, &local_rank)) return Expected(given, "local ranks, such as 0,1");
    options->shown_local_ranks.insert(local_rank);
  }
  return absl::OkStatus();
}

// torchrun's lists: "a,b" is a and b, and "a,,b" is the text "a,b".
std::vector<std::string> ListOf(absl::string_view value) {
  std::vector<std::string> texts = {""};
  for (; !value.empty(); value.remove_prefix(1)) {
    if (value[0] != ',') {
      texts.back().push_back(value[0]);
    } else if (absl::StartsWith(value, ",,")) {
      texts.back().push_back(',');
      value.remove_prefix(1);
    } else {
      texts.emplace_back();
    }
  }
  for (std::string& text : texts) absl::StripAsciiWhitespace(&text);
  texts.erase(std::remove(texts.begin(), texts.end(), ""), texts.end());
  return texts;
}

absl::Status SetBinding(const GivenFlag& given, LaunchOptions* options) {
  for (const NumaBinding binding :
       {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
    if (given.value != NameOf(binding)) continue;
    options->numa_binding = binding;
    return absl::OkStatus();
  }
  return Expected(given, "node, socket, exclusive or core-complex");
}

// The launcher passes on all of them; the variable is for Python programs that start processes by torch.distributed.elastic.
absl::Status SetSignals(const GivenFlag& given, LaunchOptions* options) {
  for (const absl::string_view entry : absl::StrSplit(given.value, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(entry);
    const auto end = std::end(kForwardedSignals);
    if (std::find(std::begin(kForwardedSignals), end, name) != end) continue;
    return Bad(given, absl::StrCat("\"", Printable(name), "\" is not one of the signals that are passed on: SIGINT, ",
                                   "SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2"));
  }
  options->environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = given.value;
  return absl::OkStatus();
}

absl::Status SetWindow(const GivenFlag& given, LaunchOptions* options) {
  LOCKSTEP_RETURN_IF_ERROR(SetSeconds(given, &options->restart_window));
  if (options->restart_window > absl::ZeroDuration()) return absl::OkStatus();
  return Expected(given, "more than 0 seconds");
}

absl::Status CheckInterval(const GivenFlag& given) {
  absl::Duration unused;
  return SetSeconds(given, &unused);
}

}  // namespace

absl::Status SetOption(const std::string& name, const GivenFlag& given,
                       const std::map<std::string, std::string>& environment, LaunchOptions* options) {
  if (name == "nproc_per_node") return SetRanks(given, environment, options);
  if (name == "redirects") return SetStreams(given, &options->redirects);
  if (name == "tee") return SetStreams(given, &options->tee);
  if (name == "local_ranks_filter") return SetShownRanks(given, options);
  if (name == "numa_binding") return SetBinding(given, options);
  if (name == "spares") return SetWhole(given, &options->spares);
  if (name == "max_restarts") return SetWhole(given, &options->max_restarts);
  if (name == "restart_window") return SetWindow(given, options);
  if (name == "stall_timeout") return SetSeconds(given, &options->stall_timeout);
  if (name == "grace") return SetSeconds(given, &options->grace);
  if (name == "signals_to_handle") return SetSignals(given, options);
  if (name == "monitor_interval") return CheckInterval(given);
  if (name == "rdzv_id") options->run_id = given.value;
  if (name == "role") options->role = given.value;
  if (name == "duplicate_stdout_filters") options->duplicate_stdout_filters = ListOf(given.value);
  if (name == "duplicate_stderr_filters") options->duplicate_stderr_filters = ListOf(given.value);
  if (name == "log_dir") options->log_dir = given.value;
  if (name == "event_log") options->event_log = given.value;
  return absl::OkStatus();
}

}  // namespace lockstep::launch::internal
