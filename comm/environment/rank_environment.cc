#include "lockstep/comm/environment/rank_environment.h"

#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/slurm.h"
#include "lockstep/base/status.h"

namespace lockstep::comm {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

std::string Show(absl::string_view name, absl::string_view value) {
  return absl::StrCat("environment variable ", name, "=\"", value, "\"");
}

absl::Status CheckBelow(absl::string_view name, int value, absl::string_view limit_name, int limit) {
  if (value < limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", name, "=", value, " is not below ", limit_name, "=", limit));
}

// One launcher's names of the four numbers. The local numbers may be missing.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kByHand = {"the environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kHydra = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kCray = {"PMI", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"};
constexpr Names kSlurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};
constexpr Names kPmix = {"PMIx", "PMIX_RANK", "WORLD_SIZE", "", ""};

class Reader {
 public:
  Reader(const EnvironmentLookup& lookup, const ExplicitRank& said) : lookup_(lookup), said_(said) {}

  absl::StatusOr<RankEnvironment> Read();

 private:
  std::optional<std::string> Text(absl::string_view name) const { return name.empty() ? std::nullopt : lookup_(name); }
  bool Has(absl::string_view name) const { return Text(name).has_value(); }
  bool Same(absl::string_view a, absl::string_view b) const { return Text(a) == Text(b); }
  absl::StatusOr<std::optional<int>> Number(absl::string_view name, int least, int most = kMost) const;
  // A number that is required because another one is set.
  absl::StatusOr<int> NumberBeside(absl::string_view name, int least, const Names& names) const;

  bool IsKubeflow() const;
  const Names& Launcher() const;

  absl::Status ReadNumbers(const Names& names);
  absl::Status ReadRankAndSize(const Names& names);
  absl::Status CheckWorldSize(const Names& names) const;
  absl::Status ReadKubeflow();
  absl::StatusOr<int> KubeflowRanksPerPod() const;
  absl::Status CheckKubeflowRank(int node_rank, int rank) const;
  absl::Status ReadSlurmNode();
  absl::Status ReadMaster(const Names& names);
  absl::Status ReadSlurmMaster(const Names& names);
  absl::Status ReadTorchElastic();
  void ApplyExplicit();
  absl::Status CheckRank(const Names& names) const;
  void RecordOverruled(const Names& names);

  const EnvironmentLookup& lookup_;
  const ExplicitRank said_;
  RankEnvironment env_;
};

absl::StatusOr<std::optional<int>> Reader::Number(absl::string_view name, int least, int most) const {
  const std::optional<std::string> text = Text(name);
  if (!text) return std::optional<int>();
  int value;
  if (!absl::SimpleAtoi(*text, &value) || value < least || value > most) {
    return absl::InvalidArgumentError(absl::StrCat(Show(name, *text), " is not a number from ", least, " to ", most));
  }
  return std::optional<int>(value);
}

absl::StatusOr<int> Reader::NumberBeside(absl::string_view name, int least, const Names& names) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int> value, Number(name, least));
  if (value) return *value;
  return absl::InvalidArgumentError(absl::StrCat("environment variable ", name, " is not set, but ", names.rank, "=\"",
                                                 Text(names.rank).value_or(""), "\" (", names.launcher, ") is"));
}

bool Reader::IsKubeflow() const { return Has("PET_NODE_RANK") || Has("PET_NNODES") || Has("PET_NPROC_PER_NODE"); }

// Mpirun and Hydra start their own helpers with srun: the ranks then inherit srun's numbers for the helpers.
const Names& Reader::Launcher() const {
  const bool srun = Has("SLURM_PROCID");
  if (Has("TORCHELASTIC_RUN_ID")) return kTorchrun;
  if (Has("RANK")) return kByHand;
  if (Has("OMPI_COMM_WORLD_RANK")) return kOpenMpi;
  if (Has("PMI_RANK") && !(srun && Same("PMI_RANK", "SLURM_PROCID") && Same("PMI_SIZE", "SLURM_NTASKS"))) {
    return Has("PMI_LOCAL_RANK") ? kCray : kHydra;
  }
  if (srun) return kSlurm;
  return Has("PMIX_RANK") ? kPmix : kByHand;
}

absl::Status Reader::ReadRankAndSize(const Names& names) {
  if (said_.rank < 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(env_.rank, Number(names.rank, 0));
  }
  if (said_.world_size >= 0) return absl::OkStatus();
  if (env_.rank && &names != &kByHand && &names != &kTorchrun) {
    LOCKSTEP_ASSIGN_OR_RETURN(env_.world_size, NumberBeside(names.world_size, 1, names));
    return CheckWorldSize(names);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(env_.world_size, Number(names.world_size, 1));
  return absl::OkStatus();
}

absl::Status Reader::CheckWorldSize(const Names& names) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto by_hand, Number("WORLD_SIZE", 1));
  if (!by_hand || by_hand == env_.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("environment variable WORLD_SIZE=", *by_hand, " contradicts ",
                                                 names.world_size, "=", *env_.world_size, " (", names.launcher, ")"));
}

absl::Status Reader::ReadNumbers(const Names& names) {
  if (Has(names.rank) || Has(names.world_size)) env_.launcher = names.launcher;
  LOCKSTEP_RETURN_IF_ERROR(ReadRankAndSize(names));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto local_rank, Number(names.local_rank, 0));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto local_world_size, Number(names.local_world_size, 1));
  LOCKSTEP_ASSIGN_OR_RETURN(env_.node_rank, Number("GROUP_RANK", 0));
  if (local_rank && local_world_size) {
    LOCKSTEP_RETURN_IF_ERROR(CheckBelow(names.local_rank, *local_rank, names.local_world_size, *local_world_size));
  }
  env_.local_rank = local_rank.value_or(0);
  env_.local_world_size = local_world_size.value_or(1);
  return &names == &kSlurm ? ReadSlurmNode() : absl::OkStatus();
}

absl::Status Reader::ReadSlurmNode() {
  LOCKSTEP_ASSIGN_OR_RETURN(env_.node_rank, Number("SLURM_NODEID", 0));
  const char* name = Has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::optional<std::string> list = Text(name);
  if (!list) return absl::OkStatus();
  const std::optional<int> tasks = SlurmTasksOnNode(*list, env_.node_rank.value_or(0));
  if (!tasks) {
    return absl::InvalidArgumentError(
        absl::StrCat(Show(name, *list), " does not say how many tasks node ", env_.node_rank.value_or(0), " has"));
  }
  env_.local_world_size = *tasks;
  return CheckBelow("SLURM_LOCALID", env_.local_rank, name, *tasks);
}

// In the WORLD_SIZE that it sets, the operator counts a value that is not a number ("auto", "gpu") as 1.
absl::StatusOr<int> Reader::KubeflowRanksPerPod() const {
  int ranks = 1;
  const std::optional<std::string> text = Text("PET_NPROC_PER_NODE");
  const bool is_number = text && absl::SimpleAtoi(*text, &ranks);
  if (is_number && ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(Show("PET_NPROC_PER_NODE", *text), " is not a number from 1"));
  }
  if (is_number && ranks > 1 && !Has("LOCAL_RANK")) {
    return absl::InvalidArgumentError(
        absl::StrCat("environment variable LOCAL_RANK is not set, but PET_NPROC_PER_NODE=\"", *text,
                     "\" (Kubeflow) is: start the ranks of a pod with torchrun or Lockstep's launch"));
  }
  if (text && !is_number && Has("LOCAL_RANK")) {
    return absl::InvalidArgumentError(absl::StrCat(Show("PET_NPROC_PER_NODE", *text),
                                                   " is not a number, and LOCAL_RANK=\"", *Text("LOCAL_RANK"),
                                                   "\" makes no rank without one"));
  }
  return is_number ? ranks : 1;
}

absl::Status Reader::CheckKubeflowRank(int node_rank, int rank) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int> variable, Number("RANK", 0));
  if (!variable || *variable == node_rank || *variable == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("environment variable RANK=", *variable, " is neither the node's ",
                                                 node_rank, " (Kubeflow) nor this process's ", rank));
}

absl::Status Reader::ReadKubeflow() {
  env_.launcher = "Kubeflow";
  LOCKSTEP_ASSIGN_OR_RETURN(env_.local_world_size, KubeflowRanksPerPod());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto local_rank, Number("LOCAL_RANK", 0));
  env_.local_rank = local_rank.value_or(0);
  LOCKSTEP_RETURN_IF_ERROR(CheckBelow("LOCAL_RANK", env_.local_rank, "PET_NPROC_PER_NODE", env_.local_world_size));
  LOCKSTEP_ASSIGN_OR_RETURN(env_.node_rank, Number(Has("PET_NODE_RANK") ? "PET_NODE_RANK" : "RANK", 0));
  if (env_.node_rank && said_.rank < 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(env_.rank, GlobalRank(*env_.node_rank, env_.local_world_size, env_.local_rank));
    LOCKSTEP_RETURN_IF_ERROR(CheckKubeflowRank(*env_.node_rank, *env_.rank));
  }
  if (said_.world_size >= 0) return absl::OkStatus();
  if (Has("WORLD_SIZE")) {
    LOCKSTEP_ASSIGN_OR_RETURN(env_.world_size, Number("WORLD_SIZE", 1));
    return absl::OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, Number("PET_NNODES", 1));
  if (nodes) env_.world_size = *nodes * env_.local_world_size;
  return absl::OkStatus();
}

absl::Status Reader::ReadSlurmMaster(const Names& names) {
  const bool step = &names == &kSlurm && Has("SLURM_STEP_NODELIST");
  const char* name = step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const std::optional<std::string> list = Text(name);
  if (env_.master_addr.empty() && list) {
    const std::optional<std::string> host = FirstSlurmHost(*list);
    if (!host) return absl::InvalidArgumentError(absl::StrCat(Show(name, *list), " is not a list of hosts"));
    env_.master_addr = *host;
  }
  const std::optional<std::string> job = Text("SLURM_JOB_ID");
  if (env_.master_port >= 0 || !job) return absl::OkStatus();
  const std::optional<int> port = SlurmPort(*job);
  if (!port) return absl::InvalidArgumentError(absl::StrCat(Show("SLURM_JOB_ID", *job), " is not a number"));
  env_.master_port = *port;
  return absl::OkStatus();
}

absl::Status Reader::ReadMaster(const Names& names) {
  const bool kubeflow = env_.launcher == "Kubeflow";
  env_.master_addr = Text(kubeflow && !Has("MASTER_ADDR") ? "PET_MASTER_ADDR" : "MASTER_ADDR").value_or("");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto port,
                            Number(kubeflow && !Has("MASTER_PORT") ? "PET_MASTER_PORT" : "MASTER_PORT", 1, 65535));
  env_.master_port = port.value_or(-1);
  const bool may_be_slurm = !kubeflow && &names != &kByHand && &names != &kTorchrun;
  return may_be_slurm ? ReadSlurmMaster(names) : absl::OkStatus();
}

absl::Status Reader::ReadTorchElastic() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto restarts, Number("TORCHELASTIC_RESTART_COUNT", 0));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto listen_fd, Number("LOCKSTEP_MASTER_LISTEN_FD", 0));
  const std::string agent = absl::AsciiStrToLower(Text("TORCHELASTIC_USE_AGENT_STORE").value_or(""));
  env_.use_agent_store = agent == "1" || agent == "true";
  env_.restart_count = restarts.value_or(0);
  env_.master_listen_fd = listen_fd.value_or(-1);
  return absl::OkStatus();
}

void Reader::ApplyExplicit() {
  if (said_.rank >= 0) env_.rank = said_.rank;
  if (said_.world_size >= 0) env_.world_size = said_.world_size;
}

absl::Status Reader::CheckRank(const Names& names) const {
  if (!env_.rank || !env_.world_size || *env_.rank < *env_.world_size) return absl::OkStatus();
  if (said_.rank < 0 && said_.world_size < 0 && env_.launcher != "Kubeflow") {
    return CheckBelow(names.rank, *env_.rank, names.world_size, *env_.world_size);
  }
  return absl::InvalidArgumentError(absl::StrCat("rank ", *env_.rank,
                                                 said_.rank < 0 ? absl::StrCat(" of ", env_.launcher) : "",
                                                 " is not below world size ", *env_.world_size));
}

void Reader::RecordOverruled(const Names& names) {
  std::vector<std::string> losers;
  for (const Names* other : {&kByHand, &kOpenMpi, &kHydra, &kSlurm, &kPmix}) {
    const std::optional<std::string> value = Text(other->rank);
    const bool believed = said_.rank < 0 && other->rank == absl::string_view(names.rank);
    if (believed || !value || *value == absl::StrCat(*env_.rank)) continue;
    losers.push_back(absl::StrCat(other->rank, "=", *value, " (", other->launcher, ")"));
  }
  if (losers.empty()) return;
  const std::string winner = said_.rank >= 0 ? absl::StrCat("rank ", *env_.rank, " of the program's options")
                                             : absl::StrCat(names.rank, "=", *env_.rank, " (", env_.launcher, ")");
  env_.overruled = absl::StrCat(winner, " wins over ", absl::StrJoin(losers, ", "));
}

absl::StatusOr<RankEnvironment> Reader::Read() {
  const Names& names = Launcher();
  const bool kubeflow = &names == &kByHand && IsKubeflow();
  LOCKSTEP_RETURN_IF_ERROR(kubeflow ? ReadKubeflow() : ReadNumbers(names));
  LOCKSTEP_RETURN_IF_ERROR(ReadMaster(names));
  LOCKSTEP_RETURN_IF_ERROR(ReadTorchElastic());
  ApplyExplicit();
  LOCKSTEP_RETURN_IF_ERROR(CheckRank(names));
  if (env_.rank && !kubeflow) RecordOverruled(names);
  return env_;
}

}  // namespace

std::optional<std::string> ProcessEnvironment(absl::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

absl::StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentLookup& lookup,
                                                    const ExplicitRank& explicit_rank) {
  return Reader(lookup, explicit_rank).Read();
}

absl::StatusOr<int> GlobalRank(int node_rank, int nproc_per_node, int local_rank) {
  if (node_rank < 0 || nproc_per_node < 1 || local_rank < 0 || local_rank >= nproc_per_node ||
      node_rank > (kMost - local_rank) / nproc_per_node) {
    return absl::InvalidArgumentError(absl::StrCat("node rank ", node_rank, ", ", nproc_per_node,
                                                   " ranks per node, local rank ", local_rank, " make no rank"));
  }
  return node_rank * nproc_per_node + local_rank;
}

}  // namespace lockstep::comm
