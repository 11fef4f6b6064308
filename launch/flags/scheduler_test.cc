#include "lockstep/launch/flags/scheduler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Environment = std::map<std::string, std::string>;

// A task of `srun --ntasks-per-node=1` on the second of three nodes.
Environment Srun() {
  return {{"SLURM_JOB_ID", "1230042"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "1"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_NNODES", "8"},
          {"SLURM_STEP_NODELIST", "node[03-04,7]"},
          {"SLURM_JOB_NODELIST", "node[01-08]"}};
}

Environment With(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

using Backend = RendezvousOptions::Backend;

Settings SettingsOf(const Environment& environment, const LaunchOptions& options = {},
                    Backend backend = Backend::kStatic) {
  Settings settings;
  settings.own_environment = environment;
  settings.options = options;
  settings.rendezvous.backend = backend;
  return settings;
}

// The line that says what was filled in, or the error.
std::string LineOf(Settings settings, const GivenFlags& given = {}) {
  const absl::StatusOr<std::string> line = FillFromScheduler(given, &settings);
  return line.ok() ? *line : std::string(line.status().message());
}

std::string Line(const Environment& environment, const GivenFlags& given = {}) {
  return LineOf(SettingsOf(environment), given);
}

GivenFlags Standalone() { return {{"standalone", {}}}; }

GivenFlags Nnodes() { return {{"nnodes", {}}}; }

TEST(FillFromScheduler, DoesNothingWithoutAScheduler) {
  EXPECT_EQ(Line({}), "");
  EXPECT_EQ(Line({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}), "") << "which of them this is, nothing says";
  EXPECT_EQ(Line({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "");
}

TEST(FillFromScheduler, TakesTheNodesOfSrun) {
  Settings settings = SettingsOf(Srun());
  const absl::StatusOr<std::string> line = FillFromScheduler({}, &settings);
  const LaunchOptions& options = settings.options;
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(*line, "the variables of srun say nnodes=3, node_rank=1, master_addr=node03, master_port=15042");
  EXPECT_EQ(options.nnodes, 3);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.master_addr, "node03");
  EXPECT_EQ(options.master_port, 15042);
}

TEST(FillFromScheduler, TakesFromSrunOnlyWhatIsNotGiven) {
  const GivenFlags given = {{"nnodes", {}}, {"master_addr", {}}};
  LaunchOptions options;
  options.nnodes = 3;
  options.master_addr = "10.0.0.1";
  EXPECT_EQ(LineOf(SettingsOf(Srun(), options), given), "the variables of srun say node_rank=1, master_port=15042");
  options.nnodes = 2;
  EXPECT_EQ(LineOf(SettingsOf(Srun(), options), given), "") << "the flags mean other nodes than srun's";
  EXPECT_EQ(Line(With(Srun(), {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}})),
            "the variables of srun say nnodes=3, node_rank=1, master_addr=a, master_port=29500");
}

TEST(FillFromScheduler, IsOneNodeIfTheFlagsSaySo) {
  EXPECT_EQ(Line(Srun(), Standalone()), "");
  EXPECT_EQ(Line(Srun(), Nnodes()), "");
}

TEST(FillFromScheduler, TakesAStepOfOneTaskForOneNode) {
  EXPECT_EQ(
      Line(With(Srun(),
                {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_NUM_NODES", "1"}})),
      "");
}

TEST(FillFromScheduler, RefusesSeveralLaunchersOnOneNode) {
  const Environment variables = With(Srun(), {{"SLURM_NTASKS", "6"}});
  EXPECT_EQ(Line(variables),
            "srun runs launch 6 times on 3 nodes, and no flag says how many nodes take part: start one launch on each "
            "node, by srun --ntasks-per-node=1; if each task is a rank, start the program without launch; or pass "
            "--standalone for a job of this node alone");
  EXPECT_EQ(Line(variables, Standalone()), "");
  // On a node that has one task too.
  EXPECT_THAT(Line(With(Srun(), {{"SLURM_NTASKS", "4"}})), StartsWith("srun runs launch 4 times on 3 nodes"));
}

TEST(FillFromScheduler, RefusesABatchScriptOnSeveralNodes) {
  // sbatch sets the variables of a task, but not of a step.
  Environment batch = {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_NNODES", "4"}};
  EXPECT_EQ(Line(batch),
            "Slurm has allocated 4 nodes, but launch runs on one of them, and no flag says so: start it with srun "
            "--ntasks-per-node=1, or pass --standalone for a job of this node alone");
  EXPECT_EQ(Line(batch, Standalone()), "");
  EXPECT_EQ(Line(batch, Nnodes()), "");
  batch["SLURM_NNODES"] = "1";
  EXPECT_EQ(Line(batch), "");
}

TEST(FillFromScheduler, RefusesAProcessOfMpirun) {
  const Environment variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  const std::string error =
      "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=1 say that 4 processes take part, but no flag does: with one "
      "launch on each node, pass --nnodes=$OMPI_COMM_WORLD_SIZE --node_rank=$OMPI_COMM_WORLD_RANK --master_addr=HOST "
      "--master_port=PORT; if each process is a rank, start the program without launch; or pass --standalone for a job "
      "of this node alone";
  EXPECT_EQ(Line(variables), error);
  EXPECT_EQ(Line(With(Srun(), variables)), error) << "mpirun starts its helpers with srun";
  EXPECT_EQ(Line(variables, Nnodes()), "");
  EXPECT_EQ(Line(variables, Standalone()), "");
  EXPECT_THAT(Line({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), StartsWith("PMI_SIZE=2 and PMI_RANK=1 say "));
  EXPECT_THAT(Line(With(Srun(), {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})), StartsWith("PMI_SIZE=2 and PMI_RANK=1 say "));
  EXPECT_THAT(Line(With(Srun(), {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}})), StartsWith("the variables of srun say "));
}

TEST(FillFromScheduler, RefusesAPodOfKubernetes) {
  const Environment pod = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-0"}, {"MASTER_PORT", "23456"}};
  EXPECT_THAT(Line(pod), StartsWith("WORLD_SIZE=4 and RANK=0 say that 4 processes take part, but no flag does: "));
  EXPECT_THAT(Line(pod), HasSubstr(" pass --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR "
                                   "--master_port=$MASTER_PORT; "));
  // The operator sets these beside them.
  EXPECT_EQ(Line(With(pod, {{"PET_NPROC_PER_NODE", "8"}, {"PET_NNODES", "4"}}), Nnodes()), "");
}

TEST(FillFromScheduler, RefusesSeveralLaunchersThatWouldNotMeetByTheirRendezvous) {
  const auto by_tcp = [](const Environment& environment) { return SettingsOf(environment, {}, Backend::kTcp); };
  EXPECT_EQ(LineOf(by_tcp({{"RANK", "1"}, {"WORLD_SIZE", "4"}})),
            "WORLD_SIZE=4 and RANK=1 say that 4 processes take part, but no flag does: with one launch on each node, "
            "pass --nnodes=$WORLD_SIZE and --rdzv_endpoint; if each process is a rank, start the program without "
            "launch; or pass --standalone for a job of this node alone");
  EXPECT_THAT(LineOf(by_tcp(Srun())), HasSubstr("pass --nnodes=$SLURM_NTASKS and --rdzv_endpoint;"));
  EXPECT_EQ(LineOf(by_tcp({{"RANK", "0"}, {"WORLD_SIZE", "1"}})), "");
  EXPECT_EQ(LineOf(by_tcp({})), "");
  EXPECT_EQ(LineOf(by_tcp(Srun()), Nnodes()), "");
  EXPECT_EQ(LineOf(by_tcp({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), Nnodes()), "");
  Settings settings = by_tcp(Srun());
  ASSERT_TRUE(FillFromScheduler(Nnodes(), &settings).ok());
  EXPECT_EQ(settings.options.nnodes, 1) << "the launchers agree on that";
}

TEST(FillFromScheduler, LeavesARankOfALauncherAlone) {
  EXPECT_EQ(Line({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "none"}}), "");
}

TEST(FillFromScheduler, NamesAVariableThatIsWrong) {
  EXPECT_EQ(Line(With(Srun(), {{"SLURM_NTASKS", "3\n2"}})),
            "environment variable SLURM_NTASKS=3\\n2 is not a number; unset it, pass --nnodes, or pass --standalone "
            "for a job of this node alone");
  EXPECT_EQ(Line(With(Srun(), {{"SLURM_STEP_NODELIST", "node["}})),
            "environment variable SLURM_STEP_NODELIST=node[ is not a list of hosts; pass --master_addr, or pass "
            "--standalone for a job of this node alone");
  EXPECT_EQ(Line(With(Srun(), {{"SLURM_JOB_ID", "x"}})),
            "environment variable SLURM_JOB_ID=x is not a number; pass --master_port, or pass --standalone for a job "
            "of this node alone");
  EXPECT_EQ(Line(With(Srun(), {{"SLURM_NTASKS", "x"}}), Standalone()), "");
}

}  // namespace
}  // namespace lockstep::launch
