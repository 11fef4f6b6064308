#include "lockstep/tools/launch/internal/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "lockstep/base/nearest_name.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"

namespace lockstep::launch::internal {
namespace {

constexpr char kVariablePrefix[] = "PET_";
constexpr double kMostSeconds = 1e9;  // 30 years; more would not fit in a clock's nanoseconds

// Flags with a value, and switches, that launch takes.
constexpr const char* kValueFlags[] = {"nproc_per_node", "nnodes",       "node_rank", "master_addr",  "master_port",
                                       "grace",          "rdzv_backend", "rdzv_id",   "max_restarts", "rdzv_endpoint"};
constexpr const char* kSwitches[] = {"standalone", "no_python"};

constexpr char kRedirect[] = "redirect in the program, as in: launch sh -c 'exec ./train > log.$RANK 2>&1'";
constexpr char kNeedless[] = "leave it out, it has nothing to act on here";

struct Unsupported {
  const char* name;
  const char* instead;
};

// The rest of torchrun's.
constexpr Unsupported kUnsupported[] = {
    {"rdzv_conf", kNeedless},
    {"monitor_interval", "leave it out, the end of a rank is seen at once"},
    {"start_method", "leave it out, every rank is a new process"},
    {"event_log_handler", kNeedless},
    {"role", "set it in the program, as in: launch env ROLE_NAME=trainer ./train"},
    {"m", "start the module as a program, as in: launch python -m package.train"},
    {"module", "start the module as a program, as in: launch python -m package.train"},
    {"run_path", "start the script as a program, as in: launch python train.py"},
    {"log_dir", kRedirect},
    {"r", kRedirect},
    {"redirects", kRedirect},
    {"t", "pipe in the program, as in: launch bash -c './train 2>&1 | tee log.$RANK; exit $PIPESTATUS'"},
    {"tee", "pipe in the program, as in: launch bash -c './train 2>&1 | tee log.$RANK; exit $PIPESTATUS'"},
    {"local_ranks_filter", kRedirect},
    {"duplicate_stdout_filters", kRedirect},
    {"duplicate_stderr_filters", kRedirect},
    {"local_addr", "leave it out, every node gets --master_addr"},
    {"logs_specs", kNeedless},
    {"numa_binding", "bind in the program, as in: launch sh -c 'exec numactl --cpunodebind=$LOCAL_RANK ./train'"},
    {"signals_to_handle", "leave it out, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on"},
    {"virtual_local_rank", "choose the device in the program, by LOCAL_RANK"},
};

bool IsValueFlag(const std::string& name) {
  return std::find(std::begin(kValueFlags), std::end(kValueFlags), name) != std::end(kValueFlags);
}

bool IsSwitch(const std::string& name) {
  return std::find(std::begin(kSwitches), std::end(kSwitches), name) != std::end(kSwitches);
}

const Unsupported* FindUnsupported(const std::string& name) {
  const auto found = std::find_if(std::begin(kUnsupported), std::end(kUnsupported),
                                  [&](const Unsupported& flag) { return name == flag.name; });
  return found == std::end(kUnsupported) ? nullptr : found;
}

std::vector<std::string> KnownNames() {
  std::vector<std::string> names(std::begin(kValueFlags), std::end(kValueFlags));
  names.insert(names.end(), std::begin(kSwitches), std::end(kSwitches));
  names.push_back("help");
  for (const Unsupported& flag : kUnsupported) {
    if (flag.name[1] != '\0') names.push_back(flag.name);
  }
  return names;
}

// A flag's value and its source: "--nproc-per-node" or "PET_NPROC_PER_NODE".
struct Given {
  std::string source, value;
};

absl::Status Expected(const Given& given, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(given.source, "=", Printable(given.value), ": expected ", expected));
}

absl::Status Refused(absl::string_view source, absl::string_view instead) {
  return absl::InvalidArgumentError(absl::StrCat(source, " is not supported: ", instead));
}

std::string DidYouMean(const std::optional<std::string>& name, absl::string_view prefix) {
  return name ? absl::StrCat("; did you mean ", prefix, *name, "?") : ";";
}

absl::Status SetWhole(const Given& given, int* number) {
  if (absl::SimpleAtoi(given.value, number)) return absl::OkStatus();
  return Expected(given, "a whole number");
}

absl::Status SetRanks(const Given& given, LaunchOptions* options) {
  if (given.value == "cpu") {
    options->nproc_per_node = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    return absl::OkStatus();
  }
  if (absl::SimpleAtoi(given.value, &options->nproc_per_node)) return absl::OkStatus();
  return Expected(given, "a whole number, or cpu for one a core");
}

// torchrun's "2" or "2:2". "1:4" would be a job that shrinks and grows.
absl::Status SetNodes(const Given& given, LaunchOptions* options) {
  const std::vector<std::string> range = absl::StrSplit(given.value, ':');
  if (range.size() > 2 || range.front() != range.back() || !absl::SimpleAtoi(range[0], &options->nnodes)) {
    return Expected(given, "a whole number; how many nodes there are does not change while a job runs");
  }
  return absl::OkStatus();
}

absl::Status SetEndpoint(const Given& given, LaunchOptions* options) {
  const size_t colon = given.value.rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(given.value.substr(colon + 1), &options->master_port)) {
    return Expected(given, "host:port");
  }
  options->master_addr = given.value.substr(0, colon);
  return absl::OkStatus();
}

absl::Status SetGrace(const Given& given, LaunchOptions* options) {
  double seconds;
  if (!absl::SimpleAtod(given.value, &seconds) || !(seconds >= 0 && seconds <= kMostSeconds)) {
    return Expected(given, "seconds, 0 or more, such as 0.5");
  }
  options->grace = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status CheckBackend(const Given& given) {
  if (given.value == "static") return absl::OkStatus();
  return Expected(given, "static; nodes get --node_rank, --master_addr and --master_port");
}

absl::Status CheckRestarts(const Given& given) {
  if (given.value == "0") return absl::OkStatus();
  return Expected(given, "0; nothing is restarted, so start launch again when it fails");
}

absl::Status Set(const std::string& name, const Given& given, LaunchOptions* options) {
  if (name == "nproc_per_node") return SetRanks(given, options);
  if (name == "nnodes") return SetNodes(given, options);
  if (name == "node_rank") return SetWhole(given, &options->node_rank);
  if (name == "master_port") return SetWhole(given, &options->master_port);
  if (name == "rdzv_endpoint") return SetEndpoint(given, options);
  if (name == "grace") return SetGrace(given, options);
  if (name == "rdzv_backend") return CheckBackend(given);
  if (name == "max_restarts") return CheckRestarts(given);
  (name == "master_addr" ? options->master_addr : options->run_id) = given.value;
  return absl::OkStatus();
}

using Values = std::map<std::string, Given>;  // by the flag's name

// The variables of torchrun that are set. Flags override them.
absl::StatusOr<Values> ReadVariables(const std::map<std::string, std::string>& environment) {
  Values values;
  for (const auto& [variable, value] : environment) {
    absl::string_view rest = variable;
    if (value.empty() || !absl::ConsumePrefix(&rest, kVariablePrefix)) continue;
    const std::string name = absl::AsciiStrToLower(rest);
    if (const Unsupported* flag = FindUnsupported(name)) {
      return Refused(absl::StrCat("environment variable ", variable), flag->instead);
    }
    if (IsValueFlag(name) || IsSwitch(name)) {
      if (!IsSwitch(name) || value != "0") values[name] = {variable, value};
      continue;
    }
    std::optional<std::string> nearest = NearestName(name, KnownNames());
    if (nearest) nearest = absl::AsciiStrToUpper(*nearest);
    return absl::InvalidArgumentError(absl::StrCat("unknown environment variable ", Printable(variable),
                                                   DidYouMean(nearest, kVariablePrefix), " unset it"));
  }
  return values;
}

absl::Status UnknownFlag(absl::string_view given, const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag ", Printable(given), DidYouMean(NearestName(name, KnownNames()), "--"), " --help lists the flags"));
}

// Takes the flag at args[*i], and its value, which may be the next argument.
absl::Status TakeFlag(const std::vector<std::string>& args, size_t* i, Values* values) {
  const std::string& arg = args[*i];
  const size_t equals = arg.find('=');
  const std::string given = arg.substr(0, equals);
  std::string name(absl::StripPrefix(absl::StripPrefix(given, "-"), "-"));
  std::replace(name.begin(), name.end(), '-', '_');
  if (const Unsupported* flag = FindUnsupported(name)) return Refused(Printable(given), flag->instead);
  if (IsSwitch(name)) {
    if (equals != std::string::npos) return absl::InvalidArgumentError(absl::StrCat(given, " takes no value"));
    (*values)[name] = {given, ""};
    return absl::OkStatus();
  }
  if (!IsValueFlag(name)) return UnknownFlag(given, name);
  if (equals == std::string::npos && *i + 1 == args.size()) {
    return absl::InvalidArgumentError(absl::StrCat(given, " needs a value"));
  }
  (*values)[name] = {given, equals == std::string::npos ? args[++*i] : arg.substr(equals + 1)};
  return absl::OkStatus();
}

absl::Status CheckTogether(const Values& values, const LaunchOptions& options) {
  const auto standalone = values.find("standalone");
  if (standalone != values.end() && options.nnodes > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(standalone->second.source, " is for one node, but nnodes is ", options.nnodes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args,
                                             const std::map<std::string, std::string>& environment) {
  CommandLine line;
  Values given;
  size_t i = 0;
  for (; i < args.size() && args[i].size() > 1 && args[i][0] == '-'; ++i) {
    if (args[i] == "--") {
      ++i;
      break;
    }
    line.help = args[i] == "--help" || args[i] == "-help" || args[i] == "-h";
    if (line.help) return line;
    LOCKSTEP_RETURN_IF_ERROR(TakeFlag(args, &i, &given));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Values values, ReadVariables(environment));
  for (auto& [name, value] : given) values[name] = std::move(value);
  // The endpoint is last. As in torchrun it overrides address and port.
  for (const char* name : kValueFlags) {
    const auto found = values.find(name);
    if (found != values.end()) LOCKSTEP_RETURN_IF_ERROR(Set(name, found->second, &line.options));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckTogether(values, line.options));
  line.program.assign(args.begin() + i, args.end());
  if (line.program.empty()) return absl::InvalidArgumentError("no program to launch; --help shows how");
  return line;
}

}  // namespace lockstep::launch::internal
