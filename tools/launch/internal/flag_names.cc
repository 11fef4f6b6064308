#include "lockstep/tools/launch/internal/flag_names.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"

namespace lockstep::launch::internal {
namespace {

constexpr char kNeedless[] = "leave it out, it has nothing to act on here";

// The endpoint comes after address and port: as in torchrun it overrides them.
constexpr Flag kFlags[] = {
    {"nproc_per_node", Flag::kValue, nullptr},
    {"nnodes", Flag::kValue, nullptr},
    {"node_rank", Flag::kValue, nullptr},
    {"master_addr", Flag::kValue, nullptr},
    {"master_port", Flag::kValue, nullptr},
    {"rdzv_endpoint", Flag::kValue, nullptr},
    {"rdzv_backend", Flag::kValue, nullptr},
    {"rdzv_id", Flag::kValue, nullptr},
    {"rdzv_conf", Flag::kValue, nullptr},
    {"local_addr", Flag::kValue, nullptr},
    {"role", Flag::kValue, nullptr},
    {"log_dir", Flag::kValue, nullptr},
    {"redirects", Flag::kValue, nullptr},
    {"tee", Flag::kValue, nullptr},
    {"local_ranks_filter", Flag::kValue, nullptr},
    {"duplicate_stdout_filters", Flag::kValue, nullptr},
    {"duplicate_stderr_filters", Flag::kValue, nullptr},
    {"numa_binding", Flag::kValue, nullptr},
    {"event_log", Flag::kValue, nullptr},
    {"max_restarts", Flag::kValue, nullptr},
    {"spares", Flag::kValue, nullptr},
    {"restart_window", Flag::kValue, nullptr},
    {"stall_timeout", Flag::kValue, nullptr},
    {"grace", Flag::kValue, nullptr},
    {"signals_to_handle", Flag::kValue, nullptr},
    {"monitor_interval", Flag::kValue, nullptr},
    {"standalone", Flag::kSwitch, nullptr},
    {"virtual_local_rank", Flag::kSwitch, nullptr},
    {"module", Flag::kSwitch, nullptr},
    {"run_path", Flag::kSwitch, nullptr},
    {"no_python", Flag::kSwitch, nullptr},
    {"use_env", Flag::kSwitch, nullptr},
    {"no_use_env", Flag::kSwitch, nullptr},
    {"start_method", Flag::kUnsupported, "leave it out, every rank is a new process"},
    {"event_log_handler", Flag::kUnsupported, kNeedless},
    {"logs_specs", Flag::kUnsupported, kNeedless},
};

constexpr char kOtherNameOfGrace[] = "shutdown_timeout";

const Flag* Find(absl::string_view name) {
  const auto found = std::find_if(std::begin(kFlags), std::end(kFlags), [&](const Flag& f) { return name == f.name; });
  return found == std::end(kFlags) ? nullptr : found;
}

}  // namespace

const Flag* FindFlag(const std::string& name) { return Find(name == kOtherNameOfGrace ? "grace" : name); }

const Flag* FindShortFlag(char letter) {
  switch (letter) {
    case 'r':
      return Find("redirects");
    case 't':
      return Find("tee");
    case 'm':
      return Find("module");
    default:
      return nullptr;
  }
}

std::vector<std::string> FlagNames() {
  std::vector<std::string> names = {"help", kOtherNameOfGrace};
  for (const Flag& flag : kFlags) names.push_back(flag.name);
  return names;
}

std::vector<std::string> ValueFlags() {
  std::vector<std::string> names;
  for (const Flag& flag : kFlags) {
    if (flag.kind == Flag::kValue) names.push_back(flag.name);
  }
  return names;
}

}  // namespace lockstep::launch::internal
