// Who a process is among the ranks, read from the environment variables of whatever launcher started it. No LibTorch.

#ifndef LOCKSTEP_COMM_RANK_ENVIRONMENT_H_
#define LOCKSTEP_COMM_RANK_ENVIRONMENT_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace lockstep::comm {

// nullopt or the default where the launcher does not say.
struct RankEnvironment {
  // For messages: "torchrun" (Lockstep's own launcher sets the same variables), "Kubeflow", "mpirun" (Open MPI), "PMI"
  // (MPICH, Intel MPI, Cray), "srun", "PMIx", "the environment" (RANK and WORLD_SIZE set by hand), or "no launcher".
  std::string launcher = "no launcher";

  // Which variables were passed over for the launcher's, as in "RANK=3 (torchrun) wins over SLURM_PROCID=1 (srun)";
  // empty if none.
  std::string overruled;

  absl::optional<int> rank;
  absl::optional<int> world_size;
  int local_rank = 0;             // the rank among those of this node
  int local_world_size = 1;       // how many ranks this node has
  absl::optional<int> node_rank;  // the number of this node: GROUP_RANK, SLURM_NODEID, PET_NODE_RANK
  std::string master_addr;        // where the store listens; empty if unknown
  int master_port = -1;           // -1 if unknown

  // TORCHELASTIC_USE_AGENT_STORE: the launcher's agent owns the store at MASTER_ADDR:MASTER_PORT, and rank 0 is a
  // client like the others.
  bool use_agent_store = false;
  int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT: how often the agent has restarted the ranks over that store

  // LOCKSTEP_MASTER_LISTEN_FD: a socket that rank 0 inherited, bound to MASTER_PORT already; -1 if not set.
  int master_listen_fd = -1;
};

// What the program itself says; it wins over every variable. -1: not said.
struct ExplicitRank {
  int rank = -1;
  int world_size = -1;
};

// The value of an environment variable, or nullopt.
using EnvironmentLookup = std::function<absl::optional<std::string>(absl::string_view name)>;

// This process's environment.
absl::optional<std::string> ProcessEnvironment(absl::string_view name);

// Reads nothing but `lookup`. The first of these whose variables are there is believed:
//
//   torchrun       RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, told by TORCHELASTIC_RUN_ID
//   Kubeflow       PET_NODE_RANK, PET_NNODES, PET_NPROC_PER_NODE, PET_MASTER_*; RANK is then the node's number, as a
//                  PyTorchJob sets it: with several ranks a pod LOCAL_RANK must be set, and the rank is GlobalRank()
//   (by hand)      RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI       OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   PMI            PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS or PMI_LOCAL_RANK, PMI_LOCAL_SIZE; within an
//                  allocation of Slurm where srun's own numbers are the same, srun is believed, which says more
//   srun           SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE
//   PMIx           PMIX_RANK, which has no world size beside it: WORLD_SIZE must be said
//
// MASTER_ADDR and MASTER_PORT hold for each of them. Within an allocation of Slurm they default to the first host of
// SLURM_STEP_NODELIST (srun) or SLURM_JOB_NODELIST, and to port 15000 + SLURM_JOB_ID % 10000, which two jobs of one
// host may share: set MASTER_PORT there.
//
// InvalidArgument, naming the variable and its value: for a number that is none or is out of range, a rank that is not
// below its world size, a local rank that is not below its number, variables that contradict each other, and one that
// is missing where another of the same launcher is set.
absl::StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentLookup& lookup = ProcessEnvironment,
                                                    const ExplicitRank& explicit_rank = {});

// node_rank * nproc_per_node + local_rank, the rank where every node has as many. InvalidArgument for a negative
// number, or a local rank that is not below nproc_per_node.
absl::StatusOr<int> GlobalRank(int node_rank, int nproc_per_node, int local_rank);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RANK_ENVIRONMENT_H_
