#include "lockstep/launch/flags/flag_values.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/cpu/cpu_plan.h"
#include "lockstep/launch/flags/devices.h"
#include "lockstep/launch/flags/endpoint_flag.h"

namespace lockstep::launch {
namespace {

constexpr double kMostSeconds = 1e9;  // 30 years; more would not fit in a clock's nanoseconds
constexpr absl::string_view kForwardedSignals[] = {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"};

absl::Status Bad(const GivenFlag& given, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(given.source, "=", Printable(given.value), ": ", why));
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

}  // namespace

absl::Status Expected(const GivenFlag& given, absl::string_view expected) {
  return Bad(given, absl::StrCat("expected ", expected));
}

absl::Status Read(const GivenFlag&, bool* is_given) {
  *is_given = true;
  return absl::OkStatus();
}

absl::Status Read(const GivenFlag& given, int* number) {
  if (absl::SimpleAtoi(given.value, number)) return absl::OkStatus();
  return Expected(given, "a whole number");
}

absl::Status Read(const GivenFlag& given, std::optional<int>* number) { return Read(given, &number->emplace()); }

absl::Status Read(const GivenFlag& given, std::string* text) {
  *text = given.value;
  return absl::OkStatus();
}

absl::Status Read(const GivenFlag& given, absl::Duration* duration) {
  double seconds;
  if (!absl::SimpleAtod(given.value, &seconds) || !(seconds >= 0 && seconds <= kMostSeconds)) {
    return Expected(given, "seconds, 0 or more, such as 0.5");
  }
  *duration = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status Read(const GivenFlag& given, RankStreams* streams) {
  if (ParseRankStreams(given.value, streams)) return absl::OkStatus();
  return Expected(given,
                  "0 for none, 1 for stdout, 2 for stderr or 3 for both, or such a number for each local rank, as in "
                  "0:3,1:2");
}

absl::Status Read(const GivenFlag& given, NumaBinding* binding) {
  for (const NumaBinding known :
       {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
    if (given.value != NameOf(known)) continue;
    *binding = known;
    return absl::OkStatus();
  }
  return Expected(given, "node, socket, exclusive or core-complex");
}

absl::Status Read(const GivenFlag& given, std::set<int>* local_ranks) {
  if (given.value.empty()) return absl::OkStatus();
  for (const absl::string_view entry : absl::StrSplit(given.value, ',')) {
    int local_rank;
    if (!absl::SimpleAtoi(entry, &local_rank)) return Expected(given, "local ranks, such as 0,1");
    local_ranks->insert(local_rank);
  }
  return absl::OkStatus();
}

absl::Status Read(const GivenFlag& given, std::vector<std::string>* list) {
  *list = {""};
  for (absl::string_view rest = given.value; !rest.empty(); rest.remove_prefix(1)) {
    if (rest[0] != ',') {
      list->back().push_back(rest[0]);
    } else if (absl::StartsWith(rest, ",,")) {
      list->back().push_back(',');
      rest.remove_prefix(1);
    } else {
      list->emplace_back();
    }
  }
  for (std::string& text : *list) absl::StripAsciiWhitespace(&text);
  list->erase(std::remove(list->begin(), list->end(), ""), list->end());
  return absl::OkStatus();
}

absl::Status ReadHost(const GivenFlag& given, std::string* host) {
  absl::StatusOr<std::string> read = ReadHost(given.value);
  if (!read.ok()) return Expected(given, read.status().message());
  *host = *std::move(read);
  return absl::OkStatus();
}

absl::Status SetRanks(const GivenFlag& given, Settings* to) {
  const auto visible = to->own_environment.find("CUDA_VISIBLE_DEVICES");
  const int devices = NvidiaDevices("/dev", visible == to->own_environment.end() ? nullptr : visible->second.c_str());
  if (given.value == "gpu" && devices == 0) return Bad(given, "there is no NVIDIA device, or none is visible");
  if (given.value == "gpu" || (given.value == "auto" && devices > 0)) {
    to->options.nproc_per_node = devices;
  } else if (given.value == "cpu" || given.value == "auto") {
    to->options.nproc_per_node = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  } else if (!absl::SimpleAtoi(given.value, &to->options.nproc_per_node)) {
    return Expected(given, "a whole number, cpu for one a core, gpu for one a device, or auto");
  }
  return absl::OkStatus();
}

// The launcher passes on all of them; the variable is for Python programs that start processes by
// torch.distributed.elastic.
absl::Status SetSignals(const GivenFlag& given, Settings* to) {
  for (const absl::string_view entry : absl::StrSplit(given.value, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(entry);
    const auto end = std::end(kForwardedSignals);
    if (std::find(std::begin(kForwardedSignals), end, name) != end) continue;
    return Bad(given, absl::StrCat("\"", Printable(name), "\" is not one of the signals that are passed on: SIGINT, ",
                                   "SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2"));
  }
  to->options.environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = given.value;
  return absl::OkStatus();
}

absl::Status SetWindow(const GivenFlag& given, Settings* to) {
  LOCKSTEP_RETURN_IF_ERROR(Read(given, &to->options.restart_window));
  if (to->options.restart_window > absl::ZeroDuration()) return absl::OkStatus();
  return Expected(given, "more than 0 seconds");
}

absl::Status CheckInterval(const GivenFlag& given, Settings*) {
  absl::Duration unused;
  return Read(given, &unused);
}

}  // namespace lockstep::launch
