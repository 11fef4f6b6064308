#include "lockstep/launch/flags/scheduler.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/slurm.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

constexpr char kOrAlone[] = "or pass --standalone for a job of this node alone";

// The variables that say which of how many processes this is.
struct Names {
  const char* rank;
  const char* size;
};

constexpr Names kSrun = {"SLURM_PROCID", "SLURM_NTASKS"}, kPmi = {"PMI_RANK", "PMI_SIZE"};
// Kubernetes operators and scripts set RANK. Mpirun and Hydra start their own helpers with srun, whose variables the
// processes inherit. So srun comes last, as in comm/environment.
constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, kPmi, kSrun};

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

class Scheduler {
 public:
  Scheduler(const GivenFlags& given, Settings* settings)
      : given_(given),
        has_rendezvous_(settings->rendezvous.backend != RendezvousOptions::Backend::kStatic),
        environment_(settings->own_environment),
        options_(settings->options) {}

  absl::StatusOr<std::string> Fill();

 private:
  bool IsGiven(const std::string& flag) const { return given_.count(flag) != 0; }
  bool Has(const std::string& name) const { return environment_.count(name) != 0; }
  // "" if it is not set.
  std::string Text(const std::string& name) const;
  std::string Shown(const std::string& name) const { return absl::StrCat(name, "=", Printable(Text(name))); }
  absl::StatusOr<int> Number(const std::string& name) const;
  std::optional<Names> Launcher() const;
  int NodesOf(const char* first, const char* second) const;

  absl::Status CheckAllocation() const;
  absl::Status SeveralJobs(const Names& names, int size) const;
  absl::StatusOr<std::string> FillFromSrun(int size);
  absl::StatusOr<std::string> SrunsAddress() const;
  absl::StatusOr<int> SrunsPort() const;

  const GivenFlags& given_;
  const bool has_rendezvous_;  // --rdzv_backend is tcp or etcd-v3
  const std::map<std::string, std::string>& environment_;
  LaunchOptions& options_;
};

std::string Scheduler::Text(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? "" : found->second;
}

absl::StatusOr<int> Scheduler::Number(const std::string& name) const {
  int number;
  if (absl::SimpleAtoi(Text(name), &number) && number >= 0) return number;
  return Bad("environment variable ", Shown(name), " is not a number; unset it, pass --nnodes, ", kOrAlone);
}

// A batch script has the variables of a task, but not of a step. Where srun sets PMI's variables too, it says more.
std::optional<Names> Scheduler::Launcher() const {
  const bool is_task = Has("SLURM_STEP_ID");
  for (const Names& names : kLaunchers) {
    if (!Has(names.rank) || !Has(names.size)) continue;
    if (names.rank == kSrun.rank && !is_task) continue;
    if (names.rank == kPmi.rank && is_task && Text(names.size) == Text(kSrun.size)) continue;
    return names;
  }
  return std::nullopt;
}

// The first of two variables that is a number; 1 without one.
int Scheduler::NodesOf(const char* first, const char* second) const {
  for (const char* name : {first, second}) {
    const absl::StatusOr<int> number = Number(name);
    if (number.ok()) return *number;
  }
  return 1;
}

// A batch script runs on the first node of its allocation alone.
absl::Status Scheduler::CheckAllocation() const {
  const int nodes = NodesOf("SLURM_NNODES", "SLURM_JOB_NUM_NODES");
  if (Has("SLURM_STEP_ID") || !Has("SLURM_JOB_ID") || nodes < 2) return absl::OkStatus();
  return Bad("Slurm has allocated ", nodes,
             " nodes, but launch runs on one of them, and no flag says so: start it with ",
             "srun --ntasks-per-node=1, ", kOrAlone);
}

absl::Status Scheduler::SeveralJobs(const Names& names, int size) const {
  const bool has_master = Has("MASTER_ADDR") && Has("MASTER_PORT");
  const std::string flags = has_rendezvous_ ? " and --rdzv_endpoint"
                                            : absl::StrCat(" --node_rank=$", names.rank,
                                                           " --master_addr=", has_master ? "$MASTER_ADDR" : "HOST",
                                                           " --master_port=", has_master ? "$MASTER_PORT" : "PORT");
  return Bad(Shown(names.size), " and ", Shown(names.rank), " say that ", size,
             " processes take part, but no flag does: with one launch on each node, pass --nnodes=$", names.size, flags,
             "; if each process is a rank, start the program without launch; ", kOrAlone);
}

absl::StatusOr<std::string> Scheduler::SrunsAddress() const {
  if (Has("MASTER_ADDR")) return Text("MASTER_ADDR");
  const std::string name = Has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const std::optional<std::string> host = FirstSlurmHost(Text(name));
  if (host) return *host;
  return Bad("environment variable ", Shown(name), " is not a list of hosts; pass --master_addr, ", kOrAlone);
}

absl::StatusOr<int> Scheduler::SrunsPort() const {
  if (Has("MASTER_PORT")) return Number("MASTER_PORT");
  const std::optional<int> port = SlurmPort(Text("SLURM_JOB_ID"));
  if (port) return *port;
  return Bad("environment variable ", Shown("SLURM_JOB_ID"), " is not a number; pass --master_port, ", kOrAlone);
}

// `size` launchers run, one on each node.
absl::StatusOr<std::string> Scheduler::FillFromSrun(int size) {
  std::vector<std::string> filled;
  const auto note = [&](absl::string_view name, const auto& value) {
    filled.push_back(absl::StrCat(name, "=", value));
  };
  if (!IsGiven("nnodes")) note("nnodes", options_.nnodes = size);
  if (!IsGiven("node_rank")) {
    LOCKSTEP_ASSIGN_OR_RETURN(options_.node_rank, Number(Has("SLURM_NODEID") ? "SLURM_NODEID" : kSrun.rank));
    note("node_rank", options_.node_rank);
  }
  if (!IsGiven("master_addr") && !IsGiven("rdzv_endpoint")) {
    LOCKSTEP_ASSIGN_OR_RETURN(options_.master_addr, SrunsAddress());
    note("master_addr", options_.master_addr);
  }
  if (!IsGiven("master_port") && !IsGiven("rdzv_endpoint")) {
    LOCKSTEP_ASSIGN_OR_RETURN(options_.master_port, SrunsPort());
    note("master_port", options_.master_port);
  }
  return filled.empty() ? "" : absl::StrCat("the variables of srun say ", Printable(absl::StrJoin(filled, ", ")));
}

absl::StatusOr<std::string> Scheduler::Fill() {
  if (IsGiven("standalone") || Has("TORCHELASTIC_RUN_ID")) return "";
  if (IsGiven("nnodes") && (options_.nnodes == 1 || has_rendezvous_)) return "";
  const std::optional<Names> names = Launcher();
  const bool is_srun = names && names->rank == kSrun.rank;
  if (IsGiven("nnodes") && !is_srun) return "";
  if (!names) {
    LOCKSTEP_RETURN_IF_ERROR(CheckAllocation());
    return "";
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const int size, Number(names->size));
  if (size < 2) return "";
  const int nodes = NodesOf("SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  if (!is_srun || (has_rendezvous_ && nodes == size)) return SeveralJobs(*names, size);
  if (nodes == size && (!IsGiven("nnodes") || options_.nnodes == nodes)) return FillFromSrun(size);
  if (IsGiven("nnodes")) return "";
  return Bad(
      "srun runs launch ", size, " times on ", nodes, nodes == 1 ? " node" : " nodes",
      ", and no flag says how many nodes take part: start one launch on each node, by srun --ntasks-per-node=1; ",
      "if each task is a rank, start the program without launch; ", kOrAlone);
}

}  // namespace

absl::StatusOr<std::string> FillFromScheduler(const GivenFlags& given, Settings* settings) {
  return Scheduler(given, settings).Fill();
}

}  // namespace lockstep::launch
