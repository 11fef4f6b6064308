// Runs the launch binary itself.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/version.h"
#include "lockstep/launch/cpu/cpu_topology.h"
#include "lockstep/launch/flags/rendezvous_flags.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using ::testing::ContainsRegex;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::ReadFile;

using LaunchBinaryTest = testing::LaunchProgramTest;

TEST_F(LaunchBinaryTest, PassesTheProgramsArgumentsOn) {
  EXPECT_EQ(Run({"--nproc_per_node=1", "echo", "--nproc_per_node=7", "--help", "a b"}), 0);
  EXPECT_EQ(Out(), "--nproc_per_node=7 --help a b\n");
  EXPECT_EQ(Err(), "");
}

TEST_F(LaunchBinaryTest, TakesEverySpellingOfAFlag) {
  for (const std::vector<std::string>& spelling : std::vector<std::vector<std::string>>{{"--nproc_per_node=2"},
                                                                                        {"--nproc_per_node", "2"},
                                                                                        {"--nproc-per-node=2"},
                                                                                        {"--nproc-per-node", "2"},
                                                                                        {"-nproc_per_node=2", "--"}}) {
    std::vector<std::string> args = spelling;
    args.insert(args.end(), {"sh", "-c", "echo $WORLD_SIZE"});
    EXPECT_EQ(Run(args), 0);
    EXPECT_EQ(Out(), "2\n2\n") << spelling[0];
  }
}

TEST_F(LaunchBinaryTest, TakesTheFlagsOfSeveralNodes) {
  EXPECT_EQ(Run({"--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=29500", "sh", "-c",
                 "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"}),
            0);
  EXPECT_EQ(Out(), "1 2 10.0.0.1 29500\n");
}

TEST_F(LaunchBinaryTest, AnswersMistakesInOneLine) {
  const auto error = [&](const std::vector<std::string>& args) {
    EXPECT_EQ(Run(args), 2);
    EXPECT_EQ(Out(), "");
    return Err();
  };
  EXPECT_EQ(error({}), "launch: no program to launch; --help shows how\n");
  EXPECT_EQ(error({"--nproc_per_node=2"}), "launch: no program to launch; --help shows how\n");
  EXPECT_EQ(error({"--nproc_per_nod=2", "true"}),
            "launch: unknown flag --nproc_per_nod; did you mean --nproc_per_node? --help lists the flags\n");
  EXPECT_EQ(error({"--flagfile=x", "true"}), "launch: unknown flag --flagfile; --help lists the flags\n");
  EXPECT_EQ(error({"--a\nb\x1b[2J", "true"}), "launch: unknown flag --a\\nb\\x1b[2J; --help lists the flags\n");
  EXPECT_EQ(error({"--nproc_per_node"}), "launch: --nproc_per_node needs a value\n");
  EXPECT_EQ(
      error({"--nproc-per-node=two", "true"}),
      "launch: --nproc-per-node=two: expected a whole number, cpu for one a core, gpu for one a device, or auto\n");
  EXPECT_EQ(error({"--node_rank=", "true"}), "launch: --node_rank=: expected a whole number\n");
  for (const std::string grace : {"soon", "-1", "nan", "inf", "1e300"}) {
    EXPECT_EQ(error({"--grace=" + grace, "true"}),
              "launch: --grace=" + grace + ": expected seconds, 0 or more, such as 0.5\n");
  }
  EXPECT_EQ(error({"--nproc_per_node=0", "true"}), "launch: nproc_per_node must be at least 1, but is 0\n");
  EXPECT_EQ(error({"--nnodes=0", "true"}),
            "launch: --nnodes=0: expected at least 1 node, and at most as many before the colon as after it\n");
  EXPECT_EQ(error({"--nnodes=2", "--node_rank=2", "true"}),
            "launch: node_rank must be from 0 to nnodes - 1 = 1, but is 2\n");
  EXPECT_EQ(
      error({"--nnodes=2", "true"}),
      "launch: nnodes = 2 needs master_addr, the address of node 0, and master_port, a free port there; launch can "
      "take --rdzv_backend=tcp instead\n");
  EXPECT_EQ(error({"--nnodes=2", "--master_addr=a", "true"}),
            "launch: nnodes = 2 needs master_port, a port that is free on node 0, the same on every node\n");
  EXPECT_EQ(error({"--master_port=70000", "true"}), "launch: master_port must be from 0 to 65535, but is 70000\n");
}

TEST_F(LaunchBinaryTest, AnswersMistakesInTheFlagsOfOutputAndRestarts) {
  const auto error = [&](const std::vector<std::string>& args) {
    EXPECT_EQ(Run(args), 2);
    EXPECT_EQ(Out(), "");
    return Err();
  };
  for (const std::string streams : {"4", "", "both", "0:1,", "0:4", "0:1:1", "a:1"}) {
    EXPECT_EQ(error({"-r", streams, "true"}),
              "launch: -r=" + streams +
                  ": expected 0 for none, 1 for stdout, 2 for stderr or 3 for both, or such a number for each local "
                  "rank, as in 0:3,1:2\n");
  }
  EXPECT_EQ(error({"-t1:3", "true"}), "launch: tee names local rank 1, but nproc_per_node is 1\n");
  EXPECT_EQ(error({"--redirects=0:1,7:3", "true"}), "launch: redirects names local rank 7, but nproc_per_node is 1\n");
  EXPECT_EQ(error({"--local-ranks-filter=0,x", "true"}),
            "launch: --local-ranks-filter=0,x: expected local ranks, such as 0,1\n");
  EXPECT_EQ(error({"--local-ranks-filter=0,2", "true"}),
            "launch: local_ranks_filter names local rank 2, but nproc_per_node is 1\n");
  EXPECT_EQ(error({"--max-restarts=many", "true"}), "launch: --max-restarts=many: expected a whole number\n");
  EXPECT_EQ(error({"--max-restarts=-1", "true"}), "launch: max_restarts must be at least 0, but is -1\n");
  EXPECT_EQ(error({"--max-restarts=1", "--nnodes=2", "--master_addr=a", "--master_port=1", "true"}),
            "launch: max_restarts = 1 needs nnodes = 1, or --rdzv_backend=tcp or etcd-v3: by itself no node tells the "
            "others that it "
            "starts its ranks again\n");
  EXPECT_EQ(error({"--max-restarts=1", "--restart-window=0", "true"}),
            "launch: --restart-window=0: expected more than 0 seconds\n");
  EXPECT_EQ(error({"--restart-window=60", "true"}), "launch: --restart-window needs --max_restarts, which is 0\n");
  EXPECT_EQ(error({"--monitor-interval=often", "true"}),
            "launch: --monitor-interval=often: expected seconds, 0 or more, such as 0.5\n");
  EXPECT_EQ(error({"--signals-to-handle=SIGTERM,SIGPIPE", "true"}),
            "launch: --signals-to-handle=SIGTERM,SIGPIPE: \"SIGPIPE\" is not one of the signals that are passed on: "
            "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2\n");
  EXPECT_EQ(error({"-m", "--no-python", "train"}), "launch: -m needs Python, but --no-python is given too\n");
  EXPECT_EQ(error({"--use-env=1", "train"}), "launch: --use-env takes no value\n");
}

TEST_F(LaunchBinaryTest, TakesAGraceOfHalfASecond) {
  const pid_t pid =
      Start({"--shutdown-timeout=0.5", "sh", "-c", "trap '' TERM; echo $$ > $D/0; while :; do sleep 0.1; done"});
  AwaitPid(folder_ + "0");
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 143);
  EXPECT_THAT(Err(), MatchesRegex("launch: the launcher received signal 15 \\(SIGTERM\\); 1 rank was ended by SIGKILL "
                                  "after [5-9][0-9]0ms\n"));
}

TEST_F(LaunchBinaryTest, TakesWhatOfTorchrunNeedsNothing) {
  EXPECT_EQ(Run({"--standalone", "--nnodes=1:1", "--nproc-per-node=2", "--rdzv-backend=static", "--rdzv-id=7",
                 "--max-restarts=0", "--no-python", "sh", "-c", "echo $WORLD_SIZE $TORCHELASTIC_RUN_ID"}),
            0)
      << Err();
  EXPECT_EQ(Out(), "2 7\n2 7\n");
  EXPECT_EQ(Run({"--rdzv_endpoint=[::1]:29500", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT"}), 0);
  EXPECT_EQ(Out(), "::1 29500\n");
  EXPECT_EQ(Run({"--rdzv_endpoint=10.0.0.1:29500", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT"}), 0);
  EXPECT_EQ(Out(), "10.0.0.1 29500\n");
  EXPECT_EQ(Run({"--use_env", "--monitor_interval=5", "--signals_to_handle=SIGTERM, SIGUSR1", "--role=trainer", "sh",
                 "-c", "echo $ROLE_NAME: $TORCHELASTIC_SIGNALS_TO_HANDLE"}),
            0)
      << Err();
  EXPECT_EQ(Out(), "trainer: SIGTERM, SIGUSR1\n");
  EXPECT_EQ(Run({"--nproc_per_node=cpu", "sh", "-c", "[ $WORLD_SIZE = $(getconf _NPROCESSORS_ONLN) ]"}), 0) << Err();
}

TEST_F(LaunchBinaryTest, StartsARankForEachDevice) {
  EXPECT_EQ(RunScript(R"(shopt -s nullglob; devices=(/dev/nvidia[0-9]*); n=${#devices[@]}; unset CUDA_VISIBLE_DEVICES
      [ $n != 0 ] || n=$(getconf _NPROCESSORS_ONLN)
      $LAUNCH --nproc-per-node=auto sh -c "[ \$WORLD_SIZE = $n ] || exit 3")"),
            0)
      << Err();
  EXPECT_EQ(RunScript("CUDA_VISIBLE_DEVICES= $LAUNCH --nproc-per-node=gpu true"), 2);
  EXPECT_EQ(Err(), "launch: --nproc-per-node=gpu: there is no NVIDIA device, or none is visible\n");
}

TEST_F(LaunchBinaryTest, GivesEachRankADeviceOfItsOwn) {
  const std::string show = "sh -c 'echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES > $D/$RANK'";
  EXPECT_EQ(RunScript("unset CUDA_VISIBLE_DEVICES; $LAUNCH --virtual-local-rank --nproc_per_node=2 " + show), 0);
  EXPECT_EQ(ReadFile(folder_ + "0") + ReadFile(folder_ + "1"), "0 0 0\n1 0 1\n");
  EXPECT_EQ(RunScript("CUDA_VISIBLE_DEVICES=5,7 PET_VIRTUAL_LOCAL_RANK=1 $LAUNCH --nproc_per_node=2 " + show), 0);
  EXPECT_EQ(ReadFile(folder_ + "0") + ReadFile(folder_ + "1"), "0 0 5\n1 0 7\n");
  EXPECT_EQ(RunScript("CUDA_VISIBLE_DEVICES=5,7 $LAUNCH --virtual_local_rank --nproc_per_node=3 " + show), 2);
  EXPECT_EQ(Err(), "launch: local rank 2 needs a device, but CUDA_VISIBLE_DEVICES=5,7 has 2\n");
}

TEST_F(LaunchBinaryTest, StartsPythonPrograms) {
  // The interpreter is a script that shows how it is started.
  const std::string prepare =
      "cd $D; printf '#!/bin/sh\\necho python \"$@\"\\n' > python3; chmod +x python3; "
      "touch train.py; export PATH=$D:$PATH; L=$(readlink -f $OLDPWD/$LAUNCH); ";
  const auto out = [&](const std::string& command) {
    EXPECT_EQ(RunScript(prepare + command), 0) << Err();
    return Out();
  };
  EXPECT_EQ(out("$L train.py --epochs=1"), "python -u train.py --epochs=1\n");
  EXPECT_EQ(out("$L -m package.train 1"), "python -u -m package.train 1\n");
  EXPECT_EQ(out("PET_MODULE=1 $L package.train"), "python -u -m package.train\n");
  EXPECT_EQ(out("$L --run-path /abs/script 1"), "python -u /abs/script 1\n");
  EXPECT_EQ(out("$L --no-use-env train.py 1"), "python -u train.py --local-rank=0 1\n");
  EXPECT_EQ(out("PYTHON_EXEC=/bin/echo $L train.py"), "-u train.py\n");
  EXPECT_EQ(out("printf '#!/bin/sh\\necho itself\\n' > train.py; chmod +x train.py; $L ./train.py"), "itself\n");
  EXPECT_EQ(RunScript(prepare + "rm train.py; $L train.py"), 127);
  EXPECT_EQ(Err(), "launch: program \"train.py\" not found in PATH\n");
  EXPECT_EQ(RunScript(prepare + "touch other.py; $L --no-python ./other.py"), 126);
}

TEST_F(LaunchBinaryTest, PassesTheLocalRankIfAsked) {
  EXPECT_EQ(RunScript("printf '#!/bin/sh\\necho $@ > $D/$RANK\\n' > $D/program; chmod +x $D/program\n"
                      "$LAUNCH --no-use-env --nproc_per_node=2 $D/program a --b"),
            0);
  EXPECT_EQ(ReadFile(folder_ + "0"), "--local-rank=0 a --b\n");
  EXPECT_EQ(ReadFile(folder_ + "1"), "--local-rank=1 a --b\n");
  EXPECT_EQ(RunScript("$LAUNCH --no-use-env --virtual-local-rank --nproc_per_node=2 $D/program"), 0);
  EXPECT_EQ(ReadFile(folder_ + "1"), "--local-rank=0\n") << "LOCAL_RANK is 0";
  EXPECT_EQ(Run({"--no-use-env", "--use-env", "true"}), 2);
  EXPECT_EQ(Err(), "launch: --use-env and --no-use-env contradict each other\n");
}

TEST_F(LaunchBinaryTest, RefusesTheRestOfTorchrunByName) {
  const auto error = [&](const std::vector<std::string>& args) {
    EXPECT_EQ(Run(args), 2);
    EXPECT_EQ(Out(), "");
    return Err();
  };
  // Every other flag of torch.distributed.run 2.11.
  for (const char* flag : {"--start-method=fork", "--event-log-handler=null", "--logs-specs=default"}) {
    const std::string name = std::string(flag).substr(0, std::string(flag).find('='));
    EXPECT_THAT(error({flag, "true"}), MatchesRegex("launch: " + name + " is not supported: .+\n"));
  }
  EXPECT_EQ(error({"--local-addr=a", "true"}),
            "launch: --local-addr has no effect on a static rendezvous: leave it out, every node gets --master_addr\n");
  EXPECT_EQ(error({"--standalone", "--nnodes=2", "true"}), "launch: --standalone is for one node, but nnodes is 2\n");
  EXPECT_EQ(error({"--standalone=1", "true"}), "launch: --standalone takes no value\n");
  EXPECT_EQ(error({"--help=1", "true"}), "launch: --help takes no value\n");
  EXPECT_EQ(error({"--log-dir", "--tee=3", "true"}), "launch: --log-dir needs a value\n");
  EXPECT_EQ(error({"--nnodes=1073741824", "--nproc_per_node=2", "--master_addr=a", "--master_port=1", "true"}),
            "launch: nnodes = 1073741824 with 2 ranks each are more than 2147483647 ranks\n");
  EXPECT_EQ(error({"--rdzv_endpoint=host", "true"}), "launch: --rdzv_endpoint=host: expected host:port\n");
}

class LaunchVariablesTest : public LaunchBinaryTest {
 protected:
  int RunWith(const std::string& variables, const std::string& flags = "") {
    return Run({"--", "sh", "-c",
                absl::StrCat("env ", variables, " $LAUNCH ", flags,
                             " sh -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT' 2>&1")});
  }
};

TEST_F(LaunchVariablesTest, CountWhereTheFlagIsNotGiven) {
  EXPECT_EQ(RunWith("PET_NPROC_PER_NODE=1 PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=10.0.0.1 PET_MASTER_PORT=29500"),
            0);
  EXPECT_EQ(Out(), "1 2 10.0.0.1 29500\n");
  EXPECT_EQ(RunWith("PET_NPROC_PER_NODE=9 PET_MASTER_PORT=29500 PET_STANDALONE=0 PET_TEE=", "--nproc_per_node=1"), 0);
  EXPECT_EQ(Out(), "0 1 127.0.0.1 29500\n");
}

TEST_F(LaunchVariablesTest, AreRefusedByName) {
  const auto error = [&](const std::string& variables) {
    EXPECT_EQ(RunWith(variables), 2);
    return Out().substr(0, Out().find('\n'));
  };
  EXPECT_EQ(
      error("PET_NPROC_PER_NODE=two"),
      "launch: PET_NPROC_PER_NODE=two: expected a whole number, cpu for one a core, gpu for one a device, or auto");
  EXPECT_EQ(error("PET_RDZV_CONF=3"), "launch: PET_RDZV_CONF=3: expected name=value,name=value");
  EXPECT_THAT(error("PET_LOGS_SPECS=3"),
              MatchesRegex("launch: environment variable PET_LOGS_SPECS is not supported: .+"));
  EXPECT_EQ(
      error("PET_TEE=4"),
      "launch: PET_TEE=4: expected 0 for none, 1 for stdout, 2 for stderr or 3 for both, or such a number for each "
      "local rank, as in 0:3,1:2");
  EXPECT_EQ(error("PET_NPROC_PER_NOD=3"),
            "launch: unknown environment variable PET_NPROC_PER_NOD; did you mean PET_NPROC_PER_NODE? unset it");
}

class LaunchSchedulerTest : public LaunchBinaryTest {
 protected:
  // Without a launcher around, whose ranks are left alone.
  int RunUnder(const std::string& variables, const std::string& flags = "") {
    return RunScript(
        absl::StrCat(variables, " $LAUNCH ", flags, " sh -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT' 2>&1"));
  }
};

TEST_F(LaunchSchedulerTest, VariablesOfSrunCountWhereTheFlagIsNotGiven) {
  const std::string task =
      "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NODEID=1 SLURM_NTASKS=2 SLURM_NNODES=2 "
      "SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_STEP_NODELIST='n[01-02]'";
  EXPECT_EQ(RunUnder(task), 0);
  EXPECT_EQ(Out(),
            "launch: the variables of srun say nnodes=2, node_rank=1, master_addr=n01, master_port=15007\n"
            "1 2 n01 15007\n");
  EXPECT_EQ(RunUnder(task, "--node-rank=0 --rdzv-endpoint=n02:29500"), 0);
  EXPECT_EQ(Out(), "launch: the variables of srun say nnodes=2\n0 2 n02 29500\n");
  EXPECT_EQ(RunUnder(task, "--standalone --master-port=29500"), 0);
  EXPECT_EQ(Out(), "0 1 127.0.0.1 29500\n");
}

TEST_F(LaunchSchedulerTest, VariablesOfAnotherSchedulerAreRefusedUnlessFlagsSayHowManyNodes) {
  EXPECT_EQ(RunUnder("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1"), 2);
  EXPECT_THAT(Out(), HasSubstr("launch: WORLD_SIZE=2 and RANK=1 say that 2 processes take part, but no flag does: "));
  for (const char* flags : {"--rdzv_backend=c10d", "--rdzv_backend=c10d --rdzv_endpoint=localhost:0"}) {
    EXPECT_EQ(RunUnder("RANK=1 WORLD_SIZE=2", flags), 2);
    EXPECT_THAT(Out(), HasSubstr("pass --nnodes=$WORLD_SIZE and --rdzv_endpoint; ")) << flags;
  }
  EXPECT_EQ(RunUnder("RANK=1 WORLD_SIZE=2 PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=a PET_MASTER_PORT=1"), 0);
  EXPECT_EQ(Out(), "1 2 a 1\n");
}

// The CPUs of each rank, in order of their ranks.
std::vector<std::set<int>> CpusIn(const std::string& folder, int ranks) {
  std::vector<std::set<int>> cpus;
  for (int rank = 0; rank < ranks; ++rank) {
    cpus.push_back(ParseCpuList(ReadFile(absl::StrCat(folder, rank))).value_or(std::set<int>()));
  }
  return cpus;
}

TEST_F(LaunchBinaryTest, BindsRanksToCpus) {
  const std::string flags = "CUDA_VISIBLE_DEVICES= $LAUNCH --nproc_per_node=2 --numa-binding=";
  const std::string program = R"( sh -c 'sed -n "s/^Cpus_allowed_list://p" /proc/self/status > $D/$RANK')";
  const std::set<int> allowed = *AllowedCpus();
  std::set<int> cores;
  const std::vector<Cpu> all = *ReadCpus("", allowed);
  for (const Cpu& cpu : all) cores.insert(cpu.core);
  ASSERT_EQ(RunScript(flags + "node" + program), 0) << Err();
  for (const std::set<int>& cpus : CpusIn(folder_, 2)) {
    EXPECT_FALSE(cpus.empty());
    EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), cpus.begin(), cpus.end()));
  }
  if (cores.size() < 2) GTEST_SKIP() << "this host has one core, which two ranks cannot divide";
  ASSERT_EQ(RunScript(flags + "exclusive" + program), 0) << Err();
  const std::vector<std::set<int>> cpus = CpusIn(folder_, 2);
  EXPECT_FALSE(cpus[0].empty());
  EXPECT_FALSE(cpus[1].empty());
  for (const int cpu : cpus[1]) EXPECT_EQ(cpus[0].count(cpu), 0) << "both ranks have CPU " << cpu;
}

TEST_F(LaunchBinaryTest, NeedsACoreForEachRankThatHasItsOwn) {
  const size_t ranks = AllowedCpus()->size() + 1;
  EXPECT_EQ(RunScript(absl::StrCat("PET_NUMA_BINDING=exclusive CUDA_VISIBLE_DEVICES= $LAUNCH --nproc_per_node=", ranks,
                                   " touch $D/started")),
            1);
  EXPECT_THAT(Err(),
              MatchesRegex("launch: numa_binding=exclusive: NUMA node [0-9]+ has [0-9]+ cores? for [0-9]+ ranks\n"));
  EXPECT_NE(access((folder_ + "started").c_str(), F_OK), 0);
  EXPECT_EQ(Run({"--numa-binding=cores", "true"}), 2);
  EXPECT_EQ(Err(), "launch: --numa-binding=cores: expected node, socket, exclusive or core-complex\n");
}

TEST_F(LaunchBinaryTest, HelpExplains) {
  EXPECT_EQ(Run({"-h"}), 0);
  EXPECT_THAT(Out(), HasSubstr("usage: launch "));
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(Out(), HasSubstr("launch --nproc_per_node=2 ./train --epochs=1\n"));
  for (const char* flag : {"nproc_per_node",
                           "role",
                           "virtual_local_rank",
                           "numa_binding",
                           "event_log",
                           "duplicate_stdout_filters",
                           "duplicate_stderr_filters",
                           "no_use_env",
                           "nnodes",
                           "node_rank",
                           "master_addr",
                           "master_port",
                           "rdzv_endpoint",
                           "rdzv_id",
                           "rdzv_backend",
                           "standalone",
                           "redirects",
                           "tee",
                           "log_dir",
                           "local_ranks_filter",
                           "max_restarts",
                           "restart_window",
                           "grace",
                           "shutdown_timeout",
                           "signals_to_handle",
                           "monitor_interval",
                           "module",
                           "run_path",
                           "no_python",
                           "use_env",
                           "help",
                           "version"}) {
    EXPECT_THAT(Out(), ContainsRegex(absl::StrCat("\n  (-[a-z], )?--", flag, "[= ]")));
  }
  for (const absl::string_view line : absl::StrSplit(Out(), '\n')) EXPECT_LE(line.size(), 100) << line;
  EXPECT_EQ(Err(), "");
}

TEST_F(LaunchBinaryTest, VersionIsOneLine) {
  EXPECT_EQ(Run({"--version", "no-such-program"}), 0);
  EXPECT_EQ(Out(), "launch (Lockstep) " LOCKSTEP_VERSION "\n");
  EXPECT_EQ(Err(), "");
  EXPECT_EQ(Run({"--version=2", "true"}), 2);
  EXPECT_EQ(Err(), "launch: --version takes no value\n");
}

TEST_F(LaunchBinaryTest, HelpNamesEachParameterOfTheRendezvous) {
  ASSERT_EQ(Run({"--help"}), 0);
  const std::string help = Out(), begin = "--rdzv_conf=", end = "--local_addr=";
  const std::string text = help.substr(help.find(begin), help.find(end) - help.find(begin));
  for (const std::string& name : RendezvousParameters()) {
    EXPECT_THAT(text, ContainsRegex(absl::StrCat("[^a-z_]", name, "[^a-z_]")));
    EXPECT_EQ(Run({absl::StrCat("--rdzv-conf=", name, "=1"), "true"}), 0) << name;
  }
}

TEST_F(LaunchBinaryTest, ExitsAsTheFailedRankDid) {
  EXPECT_EQ(Run({"--nproc_per_node=2", "sh", "-c", "[ $RANK = 0 ] || exit 3; exec sleep 60"}), 3);
  EXPECT_THAT(
      Err(),
      MatchesRegex("launch: rank 1 \\(local rank 1, pid [0-9]+\\) exited with code 3; the other rank was ended\n"));
  EXPECT_EQ(Run({"sh", "-c", "kill -9 $$"}), 137);
  EXPECT_EQ(Run({"no-such-program"}), 127);
  EXPECT_EQ(Err(), "launch: program \"no-such-program\" not found in PATH\n");
  EXPECT_EQ(Run({"/etc/passwd"}), 126);
  EXPECT_EQ(Run({"sh", "-c", "exit 127"}), 1);
}

TEST_F(LaunchBinaryTest, SigtermEndsTheRanksAndIsReported) {
  const pid_t pid = Start({"--nproc_per_node=2", "sh", "-c", "echo $$ > $D/$RANK; exec sleep 60"});
  const pid_t ranks[] = {AwaitPid(folder_ + "0"), AwaitPid(folder_ + "1")};
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 143);
  EXPECT_EQ(Err(), "launch: the launcher received signal 15 (SIGTERM); 2 ranks were ended\n");
  for (const pid_t rank : ranks) EXPECT_TRUE(Gone(rank));
}

TEST_F(LaunchBinaryTest, RanksDieWithAKilledLauncher) {
  const pid_t pid = Start(
      {"--nproc_per_node=2", "sh", "-c", "trap '' TERM HUP INT; echo $$ > $D/$RANK; while :; do sleep 0.1; done"});
  const pid_t ranks[] = {AwaitPid(folder_ + "0"), AwaitPid(folder_ + "1")};
  kill(pid, SIGKILL);
  EXPECT_EQ(Wait(pid), -SIGKILL);
  for (const pid_t rank : ranks) EXPECT_TRUE(Eventually([&] { return Gone(rank); })) << rank;
}

TEST_F(LaunchBinaryTest, WorksWhereSigchldIsIgnored) {
  EXPECT_EQ(Wait(Start({"sh", "-c", "trap '' CHLD; exec $LAUNCH sh -c 'exit 3'"})), 3);
}

TEST_F(LaunchBinaryTest, StartsInMilliseconds) {
  const absl::Time start = absl::Now();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Run({"--nproc_per_node=2", "true"}), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
}

}  // namespace
}  // namespace lockstep::launch
