#include "lockstep/comm/rank_environment.h"

#include <cstdlib>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::comm {
namespace {

absl::StatusOr<absl::optional<int>> Number(const EnvironmentLookup& lookup, absl::string_view name, int least,
                                           int most) {
  const absl::optional<std::string> text = lookup(name);
  if (!text) return absl::optional<int>();
  int value;
  if (!absl::SimpleAtoi(*text, &value) || value < least || value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("environment variable ", name, "=\"", *text, "\" is not a number from ", least, " to ", most));
  }
  return absl::optional<int>(value);
}

absl::Status CheckBelow(absl::string_view name, int value, absl::string_view limit_name, int limit) {
  if (value < limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", name, "=", value, " is not below ", limit_name, "=", limit));
}

bool IsTrue(const absl::optional<std::string>& text) {
  return text && (*text == "1" || absl::AsciiStrToLower(*text) == "true");
}

}  // namespace

absl::optional<std::string> ProcessEnvironment(absl::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? absl::optional<std::string>(value) : absl::nullopt;
}

absl::StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentLookup& lookup) {
  constexpr int kMost = std::numeric_limits<int>::max();
  RankEnvironment env;
  LOCKSTEP_ASSIGN_OR_RETURN(env.rank, Number(lookup, "RANK", 0, kMost));
  LOCKSTEP_ASSIGN_OR_RETURN(env.world_size, Number(lookup, "WORLD_SIZE", 1, kMost));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto local_rank, Number(lookup, "LOCAL_RANK", 0, kMost));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto local_world_size, Number(lookup, "LOCAL_WORLD_SIZE", 1, kMost));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto port, Number(lookup, "MASTER_PORT", 1, 65535));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto restarts, Number(lookup, "TORCHELASTIC_RESTART_COUNT", 0, kMost));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto listen_fd, Number(lookup, "LOCKSTEP_MASTER_LISTEN_FD", 0, kMost));
  if (env.rank && env.world_size)
    LOCKSTEP_RETURN_IF_ERROR(CheckBelow("RANK", *env.rank, "WORLD_SIZE", *env.world_size));
  if (local_rank && local_world_size) {
    LOCKSTEP_RETURN_IF_ERROR(CheckBelow("LOCAL_RANK", *local_rank, "LOCAL_WORLD_SIZE", *local_world_size));
  }
  env.local_rank = local_rank.value_or(0);
  env.local_world_size = local_world_size.value_or(1);
  env.master_addr = lookup("MASTER_ADDR").value_or("");
  env.master_port = port.value_or(-1);
  env.use_agent_store = IsTrue(lookup("TORCHELASTIC_USE_AGENT_STORE"));
  env.restart_count = restarts.value_or(0);
  env.master_listen_fd = listen_fd.value_or(-1);
  return env;
}

}  // namespace lockstep::comm
