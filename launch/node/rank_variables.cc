#include "lockstep/launch/node/rank_variables.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/printable.h"
#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {

std::map<std::string, std::string> RankVariables(const RankPlace& place, bool omp_num_threads_is_set) {
  const std::string rank = absl::StrCat(place.first_rank + place.local_rank);
  const std::string world_size = absl::StrCat(place.world_size);
  std::map<std::string, std::string> variables = {
      {"RANK", rank},
      {"LOCAL_RANK", absl::StrCat(place.virtual_local_rank ? 0 : place.local_rank)},
      {"WORLD_SIZE", world_size},
      {"LOCAL_WORLD_SIZE", absl::StrCat(place.nproc_per_node)},
      {"GROUP_RANK", absl::StrCat(place.node_rank)},
      {"GROUP_WORLD_SIZE", absl::StrCat(place.nnodes)},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world_size},
      {"ROLE_NAME", place.role},
      {"MASTER_ADDR", place.master_addr},
      {"MASTER_PORT", absl::StrCat(place.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", absl::StrCat(place.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", absl::StrCat(place.max_restarts)},
      {"TORCHELASTIC_RUN_ID", place.run_id},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
  if (place.nproc_per_node > 1 && !omp_num_threads_is_set) variables["OMP_NUM_THREADS"] = "1";
  return variables;
}

absl::StatusOr<std::string> DeviceOf(int local_rank, const char* visible) {
  if (!visible) return absl::StrCat(local_rank);
  const std::vector<std::string> devices = absl::StrSplit(visible, ',', absl::SkipWhitespace());
  if (local_rank < devices.size()) return std::string(absl::StripAsciiWhitespace(devices[local_rank]));
  return absl::InvalidArgumentError(absl::StrCat("local rank ", local_rank,
                                                 " needs a device, but CUDA_VISIBLE_DEVICES=", Printable(visible),
                                                 " has ", devices.size()));
}

std::string NewJobSecret(int nnodes, const std::map<std::string, std::string>& environment) {
  for (const char* name : {kJobSecretVariable, kJobSecretFileVariable}) {
    if (environment.count(name) != 0 || getenv(name)) return "";
  }
  if (nnodes > 1) return "";
  char bytes[32];
  // A signal may interrupt the wait for a generator that is not seeded yet. Afterwards the call does not fail.
  while (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) continue;
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

std::vector<std::string> ChangedEnvironment(const std::map<std::string, std::string>& variables) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const absl::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos) continue;
    all.emplace(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
  }
  for (const char* name : {kMasterSocketVariable, kSpawnCallVariable, kSpawnResultsVariable, kErrorFileVariable,
                           kTorchErrorFileVariable}) {
    all.erase(name);
  }
  for (const auto& [name, value] : variables) all[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : all) environment.push_back(absl::StrCat(name, "=", value));
  return environment;
}

}  // namespace lockstep::launch
