#include "lockstep/comm/environment/rank_environment.h"

#include <map>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::comm {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<RankEnvironment> Read(const Variables& variables, const ExplicitRank& said = {}) {
  return ReadRankEnvironment(
      [&variables](absl::string_view name) -> std::optional<std::string> {
        const auto found = variables.find(std::string(name));
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      said);
}

Variables operator+(Variables a, const Variables& b) {
  for (const auto& variable : b) a[variable.first] = variable.second;
  return a;
}

struct Case {
  std::string name;
  Variables variables;
  std::string launcher;
  int rank, world_size, local_rank, local_world_size, node_rank;
  std::string master_addr;
  int master_port;
  std::string overruled;
};

const Variables kTorchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                             {"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29501"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kSrun = {{"SLURM_PROCID", "3"},
                         {"SLURM_NTASKS", "5"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                         {"SLURM_JOB_NODELIST", "gpu[001-003,7],m2"},
                         {"SLURM_JOB_ID", "1234567"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "2"}};
const Variables kHydra = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
// As the operator sets them in the third of three pods.
const Variables kKubeflow = {{"RANK", "2"},
                             {"WORLD_SIZE", "3"},
                             {"PET_NODE_RANK", "2"},
                             {"PET_NNODES", "3"},
                             {"PET_NPROC_PER_NODE", "auto"},
                             {"MASTER_ADDR", "job-master-0"},
                             {"MASTER_PORT", "23456"}};

class RankEnvironmentOf : public ::testing::TestWithParam<Case> {};

TEST_P(RankEnvironmentOf, IsReadFromItsVariables) {
  const Case& c = GetParam();
  const auto env = Read(c.variables);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->launcher, c.launcher);
  EXPECT_EQ(env->rank, c.rank);
  EXPECT_EQ(env->world_size, c.world_size);
  EXPECT_EQ(env->local_rank, c.local_rank);
  EXPECT_EQ(env->local_world_size, c.local_world_size);
  EXPECT_EQ(env->node_rank.value_or(-1), c.node_rank);
  EXPECT_EQ(env->master_addr, c.master_addr);
  EXPECT_EQ(env->master_port, c.master_port);
  EXPECT_EQ(env->overruled, c.overruled);
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, RankEnvironmentOf,
    ::testing::Values(
        Case{"Torchrun", kTorchrun, "torchrun", 5, 8, 1, 4, 1, "node0", 29501, ""},
        Case{"TorchrunUnderSrun", kTorchrun + kSrun, "torchrun", 5, 8, 1, 4, 1, "node0", 29501,
             "RANK=5 (torchrun) wins over SLURM_PROCID=3 (srun)"},
        Case{"TorchrunInAPod", kKubeflow + kTorchrun, "torchrun", 5, 8, 1, 4, 1, "node0", 29501, ""},
        Case{"ByHand", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "the environment", 1, 2, 0, 1, -1, "", -1, ""},
        Case{"Srun", kSrun, "srun", 3, 5, 1, 2, 1, "gpu001", 19567, ""},
        Case{"SrunOnSomeNodesOfTheJob", kSrun + Variables{{"SLURM_STEP_NODELIST", "m2"}}, "srun", 3, 5, 1, 2, 1, "m2",
             19567, ""},
        Case{"SrunWithAMasterByHand", kSrun + Variables{{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1500"}}, "srun",
             3, 5, 1, 2, 1, "10.0.0.1", 1500, ""},
        Case{"SrunWithPmi", kSrun + Variables{{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}}, "srun", 3, 5, 1, 2, 1, "gpu001",
             19567, ""},
        Case{"SrunWithPmix", kSrun + Variables{{"PMIX_RANK", "3"}}, "srun", 3, 5, 1, 2, 1, "gpu001", 19567, ""},
        Case{"Mpirun", kOpenMpi, "mpirun", 2, 4, 0, 2, -1, "", -1, ""},
        Case{"MpirunInAnAllocation", kOpenMpi + kSrun, "mpirun", 2, 4, 0, 2, -1, "gpu001", 19567,
             "OMPI_COMM_WORLD_RANK=2 (mpirun) wins over SLURM_PROCID=3 (srun)"},
        Case{"Hydra", kHydra, "PMI", 2, 4, 0, 2, -1, "", -1, ""},
        Case{"HydraInAnAllocation", kHydra + kSrun, "PMI", 2, 4, 0, 2, -1, "gpu001", 19567,
             "PMI_RANK=2 (PMI) wins over SLURM_PROCID=3 (srun)"},
        Case{"CrayPmi",
             {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}},
             "PMI",
             3,
             4,
             1,
             2,
             -1,
             "",
             -1,
             ""},
        Case{"Pmix", {{"PMIX_RANK", "1"}, {"WORLD_SIZE", "2"}}, "PMIx", 1, 2, 0, 1, -1, "", -1, ""},
        Case{"KubeflowOneRankAPod", kKubeflow, "Kubeflow", 2, 3, 0, 1, 2, "job-master-0", 23456, ""},
        Case{"KubeflowFourRanksAPod",
             kKubeflow + Variables{{"PET_NPROC_PER_NODE", "4"}, {"WORLD_SIZE", "12"}, {"LOCAL_RANK", "3"}}, "Kubeflow",
             11, 12, 3, 4, 2, "job-master-0", 23456, ""},
        Case{"KubeflowTrainJob",
             {{"PET_NNODES", "3"},
              {"PET_NPROC_PER_NODE", "1"},
              {"PET_NODE_RANK", "1"},
              {"PET_MASTER_ADDR", "job-node-0-0.job"},
              {"PET_MASTER_PORT", "29500"}},
             "Kubeflow",
             1,
             3,
             0,
             1,
             1,
             "job-node-0-0.job",
             29500,
             ""}),
    [](const auto& info) { return info.param.name; });

TEST(RankEnvironment, SaysWhoOwnsTheStoreUnderTorchrun) {
  const auto env = Read(kTorchrun);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_TRUE(env->use_agent_store);
  EXPECT_EQ(env->restart_count, 2);
  EXPECT_EQ(env->master_listen_fd, -1);
}

TEST(RankEnvironment, IsEmptyWithoutVariables) {
  const auto env = Read({});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->launcher, "no launcher");
  EXPECT_EQ(env->rank, std::nullopt);
  EXPECT_EQ(env->world_size, std::nullopt);
  EXPECT_EQ(env->local_rank, 0);
  EXPECT_EQ(env->master_port, -1);
  EXPECT_FALSE(env->use_agent_store);
}

TEST(RankEnvironment, WhatTheProgramSaysWinsOverEveryVariable) {
  const auto env = Read(kTorchrun + Variables{{"RANK", "five"}, {"WORLD_SIZE", "2"}}, {3, 4});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->overruled, "rank 3 of the program's options wins over RANK=five (the environment)");
  EXPECT_EQ(Read(kTorchrun, {8, -1}).status().message(), "rank 8 is not below world size 8");
  EXPECT_EQ(Read(kTorchrun, {-1, 4}).status().message(), "rank 5 of torchrun is not below world size 4");
}

TEST(RankEnvironment, AnErrorNamesTheVariableAndItsValue) {
  const std::pair<Variables, std::string> cases[] = {
      {{{"RANK", "two"}}, "environment variable RANK=\"two\" is not a number from 0 to 2147483647"},
      {{{"RANK", "-1"}}, "environment variable RANK=\"-1\" is not a number from 0 to 2147483647"},
      {{{"WORLD_SIZE", "0"}}, "environment variable WORLD_SIZE=\"0\" is not a number from 1 to 2147483647"},
      {{{"MASTER_PORT", "99999"}}, "environment variable MASTER_PORT=\"99999\" is not a number from 1 to 65535"},
      {{{"RANK", "3"}, {"WORLD_SIZE", "2"}}, "environment variable RANK=3 is not below WORLD_SIZE=2"},
      {{{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "4"}},
       "environment variable LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"},
      {{{"SLURM_PROCID", "1"}}, "environment variable SLURM_NTASKS is not set, but SLURM_PROCID=\"1\" (srun) is"},
      {kSrun + Variables{{"SLURM_PROCID", "5"}}, "environment variable SLURM_PROCID=5 is not below SLURM_NTASKS=5"},
      {kSrun + Variables{{"SLURM_LOCALID", "2"}},
       "environment variable SLURM_LOCALID=2 is not below SLURM_TASKS_PER_NODE=2"},
      {kSrun + Variables{{"SLURM_NODEID", "3"}},
       "environment variable SLURM_TASKS_PER_NODE=\"2(x2),1\" does not say how many tasks node 3 has"},
      {kSrun + Variables{{"SLURM_JOB_NODELIST", "n[1-2"}},
       "environment variable SLURM_JOB_NODELIST=\"n[1-2\" is not a list of hosts"},
      {kSrun + Variables{{"SLURM_JOB_ID", "a"}}, "environment variable SLURM_JOB_ID=\"a\" is not a number"},
      {kSrun + Variables{{"WORLD_SIZE", "4"}}, "environment variable WORLD_SIZE=4 contradicts SLURM_NTASKS=5 (srun)"},
      {{{"OMPI_COMM_WORLD_RANK", "1"}},
       "environment variable OMPI_COMM_WORLD_SIZE is not set, but OMPI_COMM_WORLD_RANK=\"1\" (mpirun) is"},
      {{{"PMI_RANK", "1"}}, "environment variable PMI_SIZE is not set, but PMI_RANK=\"1\" (PMI) is"},
      {{{"PMIX_RANK", "1"}}, "environment variable WORLD_SIZE is not set, but PMIX_RANK=\"1\" (PMIx) is"},
      {kKubeflow + Variables{{"PET_NPROC_PER_NODE", "4"}},
       "environment variable LOCAL_RANK is not set, but PET_NPROC_PER_NODE=\"4\" (Kubeflow) is: start the ranks of a "
       "pod "
       "with torchrun or Lockstep's launch"},
      {kKubeflow + Variables{{"LOCAL_RANK", "1"}},
       "environment variable PET_NPROC_PER_NODE=\"auto\" is not a number, and LOCAL_RANK=\"1\" makes no rank without "
       "one"},
      {kKubeflow + Variables{{"PET_NPROC_PER_NODE", "2"}, {"LOCAL_RANK", "2"}},
       "environment variable LOCAL_RANK=2 is not below PET_NPROC_PER_NODE=2"},
      {kKubeflow + Variables{{"RANK", "1"}},
       "environment variable RANK=1 is neither the node's 2 (Kubeflow) nor this process's 2"},
      {kKubeflow + Variables{{"WORLD_SIZE", "2"}}, "rank 2 of Kubeflow is not below world size 2"},
  };
  for (const auto& [variables, message] : cases) {
    const absl::Status status = Read(variables).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(status.message(), message);
  }
}

TEST(GlobalRank, CountsTheRanksOfTheNodesBefore) {
  EXPECT_EQ(*GlobalRank(2, 4, 3), 11);
  EXPECT_EQ(GlobalRank(2, 4, 4).status().message(), "node rank 2, 4 ranks per node, local rank 4 make no rank");
  EXPECT_FALSE(GlobalRank(2147483647, 2, 0).ok());
}

}  // namespace
}  // namespace lockstep::comm
