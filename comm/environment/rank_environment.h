// Reads a process's rank from the environment variables of the launcher that started it. No LibTorch.

#ifndef LOCKSTEP_COMM_ENVIRONMENT_RANK_ENVIRONMENT_H_
#define LOCKSTEP_COMM_ENVIRONMENT_RANK_ENVIRONMENT_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::comm {

// If the launcher does not set a field, it is nullopt or the default.
struct RankEnvironment {
  // For messages: "torchrun" (Lockstep's own launcher sets the same variables), "Kubeflow", "mpirun" (Open MPI), "PMI"
  // (MPICH, Intel MPI, Cray), "srun", "PMIx", "the environment" (RANK and WORLD_SIZE set by hand), or "no launcher".
  std::string launcher = "no launcher";

  // Variables that the launcher's take precedence over, as in "RANK=3 (torchrun) wins over SLURM_PROCID=1 (srun)";
  // empty if there are none.
  std::string overruled;

  std::optional<int> rank;
  std::optional<int> world_size;
  int local_rank = 0;            // this rank's number on its node
  int local_world_size = 1;      // number of ranks on this node
  std::optional<int> node_rank;  // number of this node: GROUP_RANK, SLURM_NODEID, PET_NODE_RANK
  std::string master_addr;       // where the store listens; empty if unknown
  int master_port = -1;          // -1 if unknown

  // TORCHELASTIC_USE_AGENT_STORE: the launcher's agent serves the store at MASTER_ADDR:MASTER_PORT, and rank 0 is a
  // client like the others.
  bool use_agent_store = false;
  int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT: how often the agent has restarted the ranks

  // No variable sets it: the launcher has said that all hosts of the group are there. So while the group forms, rank
  // 0's host is given up when it has not answered for 15 s.
  bool hosts_are_up = false;

  // LOCKSTEP_MASTER_LISTEN_FD: a socket that rank 0 inherited, already bound to MASTER_PORT; -1 if not set.
  int master_listen_fd = -1;
};

// Values that the program passes. They take precedence over every variable. -1: not given.
struct ExplicitRank {
  int rank = -1;
  int world_size = -1;
};

// The value of an environment variable, or nullopt.
using EnvironmentLookup = std::function<std::optional<std::string>(absl::string_view name)>;

// This process's environment.
std::optional<std::string> ProcessEnvironment(absl::string_view name);

// Reads only variables from `lookup`. Uses the first launcher whose variables are set, in this order:
//
//   torchrun       RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK; recognised by TORCHELASTIC_RUN_ID
//   Kubeflow       PET_NODE_RANK, PET_NNODES, PET_NPROC_PER_NODE, PET_MASTER_*. RANK is the node's number, as a
//                  PyTorchJob sets it. With several ranks a pod, LOCAL_RANK must be set, and the rank is GlobalRank()
//   (by hand)      RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI       OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   PMI            PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS or PMI_LOCAL_RANK, PMI_LOCAL_SIZE. Within an
//                  allocation of Slurm, srun's variables are used instead if their numbers agree, since they say more
//   srun           SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE
//   PMIx           PMIX_RANK. PMIx does not set a world size, so WORLD_SIZE or an explicit one is required
//
// MASTER_ADDR and MASTER_PORT apply to each launcher. Within an allocation of Slurm they default to the first host of
// SLURM_STEP_NODELIST (srun) or SLURM_JOB_NODELIST, and to port 15000 + SLURM_JOB_ID % 10000. Two jobs on one host may
// get the same port: set MASTER_PORT there.
//
// InvalidArgument, naming the variable and its value: it is not a number or is out of range, a rank is not below the
// world size, a local rank is not below the local world size, variables contradict each other, or a variable is missing
// while others of the same launcher are set.
absl::StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentLookup& lookup = ProcessEnvironment,
                                                    const ExplicitRank& explicit_rank = {});

// node_rank * nproc_per_node + local_rank: the rank if every node has nproc_per_node ranks. InvalidArgument: a number
// is negative, or local_rank is not below nproc_per_node.
absl::StatusOr<int> GlobalRank(int node_rank, int nproc_per_node, int local_rank);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_ENVIRONMENT_RANK_ENVIRONMENT_H_
