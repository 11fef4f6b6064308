// The output of ranks through the launch program: --redirects, --tee, --log_dir and --local_ranks_filter.

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::KibibytesIn;
using ::testing::MatchesRegex;
using testing::ReadFile;

// The lines of `text` in order, since ranks may take turns in any way.
std::string Sorted(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

class LaunchOutputTest : public testing::LaunchProgramTest {
 protected:
  // The path of a rank's file in --log_dir=$D/logs.
  std::string LogPath(const std::string& rest) const {
    glob_t found;
    std::string path;
    if (glob(absl::StrCat(folder_, "logs/none_*/", rest).c_str(), 0, nullptr, &found) == 0) {
      path = found.gl_pathv[0];
    }
    globfree(&found);
    return path;
  }
  std::string Log(const std::string& rest) const { return ReadFile(LogPath(rest)); }
};

TEST_F(LaunchOutputTest, IsTheLaunchersOwnByDefault) {
  EXPECT_EQ(Run({"sh", "-c", "readlink /proc/$$/fd/1 /proc/$$/fd/2"}), 0);
  EXPECT_EQ(Out(), absl::StrCat(folder_, "out\n", folder_, "err\n"));
}

TEST_F(LaunchOutputTest, IsRedirectedToFiles) {
  EXPECT_EQ(RunScript(R"($LAUNCH --nproc_per_node=2 -r 0:3,1:2 --log-dir=${D}logs \
      sh -c 'echo out $RANK; echo err $RANK >&2; readlink /proc/$$/fd/2 > $D/fd')"),
            0);
  EXPECT_EQ(Out(), "out 1\n");
  EXPECT_EQ(Err(), "");
  EXPECT_EQ(Log("attempt_0/0/stdout.log"), "out 0\n");
  EXPECT_EQ(Log("attempt_0/0/stderr.log"), "err 0\n");
  EXPECT_EQ(Log("attempt_0/1/stderr.log"), "err 1\n");
  EXPECT_EQ(LogPath("attempt_0/1/stdout.log"), "");
  EXPECT_THAT(ReadFile(folder_ + "fd"), HasSubstr("/stderr.log")) << "nothing is between the rank and its file";
}

TEST_F(LaunchOutputTest, IsTeedWithAPrefix) {
  EXPECT_EQ(RunScript(R"($LAUNCH --nproc_per_node=2 --tee=3 --log-dir=${D}logs \
      sh -c 'echo out $RANK; echo; echo err $RANK >&2; printf end')"),
            0);
  EXPECT_EQ(Sorted(Out()),
            "[default0]:\n[default0]:end\n[default0]:out 0\n[default1]:\n[default1]:end\n[default1]:out 1");
  EXPECT_EQ(Sorted(Err()), "[default0]:err 0\n[default1]:err 1");
  EXPECT_EQ(Log("attempt_0/1/stdout.log"), "out 1\n\nend");
  EXPECT_EQ(Log("attempt_0/1/stderr.log"), "err 1\n");
}

TEST_F(LaunchOutputTest, HasTheRoleInThePrefix) {
  EXPECT_EQ(RunScript("PET_TEE=1 PET_ROLE=trainer PET_LOG_DIR=$D/logs $LAUNCH echo hello"), 0);
  EXPECT_EQ(Out(), "[trainer0]:hello\n");
}

TEST_F(LaunchOutputTest, GoesToANewFolderByDefault) {
  EXPECT_EQ(RunScript("TMPDIR=$D $LAUNCH --rdzv-id=job -t1 echo hello"), 0);
  EXPECT_THAT(Err(), MatchesRegex(absl::StrCat("launch: the output of the ranks is in ", folder_,
                                               "/launch_[a-z0-9]{8}/job_[a-z0-9]{8}\n")));
  EXPECT_EQ(Out(), "[default0]:hello\n");
}

TEST_F(LaunchOutputTest, HasAnotherPrefix) {
  EXPECT_EQ(RunScript(R"(TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='${role_name} $rank of $node: ' \
      $LAUNCH --nnodes=2 --node-rank=1 --master-addr=a --master-port=1 --tee=1 --log-dir=${D}logs echo hello)"),
            0);
  EXPECT_EQ(Out(), "default 1 of $node: hello\n");
}

TEST_F(LaunchOutputTest, IsCopiedLineByLine) {
  EXPECT_EQ(RunScript(R"($LAUNCH --nproc_per_node=2 --tee=3 --log-dir=${D}logs --max-restarts=1 \
      --duplicate-stdout-filters='loss, a,,b' --duplicate-stderr-filters=Error sh -c '
      echo loss 0 $RANK; echo step; echo a,b; echo Error >&2; printf "last loss"
      [ $TORCHELASTIC_RESTART_COUNT = 1 ]')"),
            0);
  EXPECT_EQ(Sorted(Log("attempt_1/filtered_stdout.log")),
            "[default0]:a,b\n[default0]:last loss\n[default0]:loss 0 0\n"
            "[default1]:a,b\n[default1]:last loss\n[default1]:loss 0 1");
  EXPECT_EQ(Sorted(Log("attempt_1/filtered_stderr.log")), "[default0]:Error\n[default1]:Error");
  EXPECT_THAT(Log("attempt_0/filtered_stdout.log"), HasSubstr("]:loss 0 "));
  EXPECT_THAT(Out(), HasSubstr("[default1]:step\n")) << "the other lines are shown as before";
}

TEST_F(LaunchOutputTest, NeedsATeeToBeCopiedLineByLine) {
  EXPECT_EQ(Run({"--duplicate-stdout-filters=a", "--tee=2", "true"}), 2);
  EXPECT_EQ(Err(), "launch: duplicate_stdout_filters needs tee: no rank has its stdout teed\n");
  EXPECT_EQ(Run({"--duplicate-stderr-filters=a", "-r3", "true"}), 2);
  EXPECT_EQ(Err(), "launch: duplicate_stderr_filters needs tee: no rank has its stderr teed\n");
  EXPECT_EQ(Run({"--duplicate-stdout-filters=,", "true"}), 0) << "no filter";
}

TEST_F(LaunchOutputTest, LeavesTheErrorOfARank) {
  EXPECT_EQ(RunScript(R"($LAUNCH --nproc_per_node=2 --log-dir=${D}logs bash -c '
      [ $RANK = 1 ] || exec sleep 60
      printf "LOCKSTEP1 9 1 9\nno \"data\"" > $LOCKSTEP_ERROR_FILE; exit 3')"),
            3);
  EXPECT_THAT(Log("attempt_0/1/error.json"), HasSubstr("{\"message\": {\"message\": \"no \\\"data\\\"\", "));
  EXPECT_EQ(LogPath("attempt_0/0/error.json"), "") << "rank 0 has not failed";
  const std::string json = "{\"message\": {\"message\": \"from Python\", \"extraInfo\": {}}}";
  EXPECT_EQ(RunScript(absl::StrCat("rm -r ${D}logs; export JSON='", json, R"('
      $LAUNCH -r3 --log-dir=${D}logs bash -c 'printf %s "$JSON" > $TORCHELASTIC_ERROR_FILE; exit 3')")),
            3);
  EXPECT_EQ(Log("attempt_0/0/error.json"), json);
}

TEST_F(LaunchOutputTest, OfFilteredRanksIsNotShown) {
  const std::string program = " sh -c 'echo out $RANK; echo err $RANK >&2'";
  EXPECT_EQ(RunScript("$LAUNCH --nproc_per_node=2 --tee=1 --local-ranks-filter=1 --log-dir=${D}logs" + program), 0);
  EXPECT_EQ(Out(), "[default1]:out 1\n");
  EXPECT_EQ(Err(), "err 1\n");
  EXPECT_EQ(Log("attempt_0/0/stdout.log"), "out 0\n");
  EXPECT_EQ(RunScript("$LAUNCH --nproc_per_node=3 --local_ranks_filter=0,2" + program), 0);
  EXPECT_EQ(Sorted(Out()), "out 0\nout 2");
  EXPECT_EQ(Sorted(Err()), "err 0\nerr 2");
}

TEST_F(LaunchOutputTest, OfSeveralRanksDoesNotMixWithinALine) {
  EXPECT_EQ(RunScript(R"($LAUNCH --nproc_per_node=8 --tee=3 --log-dir=${D}logs \
      bash -c 'for i in {1..300}; do printf "line $i "; printf "of $RANK\n"; done' | cat)"),
            0);
  std::vector<std::string> lines = absl::StrSplit(Out(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 8 * 300);
  std::vector<int> next(8, 1);
  for (const std::string& line : lines) {
    const int rank = line[8] - '0';
    ASSERT_EQ(line, absl::StrCat("[default", rank, "]:line ", next[rank]++, " of ", rank));
  }
}

TEST_F(LaunchOutputTest, IsShownInPiecesIfALineIsTooLong) {
  EXPECT_EQ(RunScript("$LAUNCH --tee=1 --log-dir=${D}logs sh -c 'head -c 150000 /dev/zero | tr \"\\0\" x'"), 0);
  EXPECT_TRUE(Out() == absl::StrCat("[default0]:", std::string(65536, 'x'), "\n[default0]:", std::string(65536, 'x'),
                                    "\n[default0]:", std::string(150000 - 2 * 65536, 'x'), "\n"));
  EXPECT_TRUE(Log("attempt_0/0/stdout.log") == std::string(150000, 'x'));
}

TEST_F(LaunchOutputTest, HasColorsOnATerminal) {
  const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.valid() && grantpt(terminal.get()) == 0 && unlockpt(terminal.get()) == 0);
  const UniqueFd line(open(ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  unsetenv("NO_COLOR");
  ProcessSpec spec;
  spec.path = getenv("LAUNCH");
  spec.argv = {"launch", "--tee=1", absl::StrCat("--log_dir=", folder_), "echo", "hello"};
  spec.environment = ChangedEnvironment({});
  spec.stdout_fd = line.get();
  EXPECT_EQ(Wait(StartProcess(spec)->pid), 0);
  std::string text(100, '\0');
  text.resize(std::max<ssize_t>(read(terminal.get(), text.data(), text.size()), 0));
  EXPECT_EQ(text, "\x1b[32m[default0]:\x1b[0mhello\r\n");
}

// From the lines "VmHWM: 1234 kB" in two files.
void ExpectGrowthBelow(int64_t kibibytes, const std::string& before, const std::string& after) {
  EXPECT_GT(KibibytesIn(before), 1000);
  EXPECT_LT(KibibytesIn(after) - KibibytesIn(before), kibibytes);
}

// The rank's parent reads its pipes: it has the rank's file open.
TEST_F(LaunchOutputTest, DoesNotMakeTheLauncherGrow) {
  EXPECT_EQ(RunScript(R"($LAUNCH --tee=3 --log-dir=${D}logs bash -c '
      [[ $(readlink /proc/$PPID/fd/*) = *attempt_0/0/stdout.log* ]] || exit 9; printf -v line %1000d 7
      grep VmHWM /proc/$PPID/status > $D/before; yes "$line" | head -c 1000000000
      grep VmHWM /proc/$PPID/status > $D/after' | wc -c; code=${PIPESTATUS[0]}; rm -r $D/logs; exit $code)"),
            0);
  int64_t shown = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Out(), &shown));
  EXPECT_GT(shown, 1000000000);
  ExpectGrowthBelow(8 << 10, folder_ + "before", folder_ + "after");
}

TEST_F(LaunchOutputTest, MakesRanksWaitForASlowReader) {
  const pid_t pid = StartScript(R"(mkfifo $D/pipe; exec 3<>$D/pipe
      $LAUNCH --tee=1 --log-dir=${D}logs bash -c '
          grep VmHWM /proc/$PPID/status > $D/before; head -c 5000000 /dev/zero | tr "\0" "\n"
          grep VmHWM /proc/$PPID/status > $D/after; echo $$ > $D/done' >&3 &
      echo $! > $D/launch; until [ -e $D/go ]; do sleep 0.01; done
      head -c $((5000000 * 12)) <&3 | md5sum > $D/seen; wait $!)");
  AwaitPid(folder_ + "launch");
  EXPECT_TRUE(Eventually([&] { return Log("attempt_0/0/stdout.log").size() >= 4096; }));
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_LE(Log("attempt_0/0/stdout.log").size(), 256 << 10) << "the launcher has read on";
  EXPECT_EQ(ReadFile(folder_ + "done"), "");
  UniqueFd(open((folder_ + "go").c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_EQ(Wait(pid), 0) << Err();
  EXPECT_NE(ReadFile(folder_ + "done"), "");
  ExpectGrowthBelow(8 << 10, folder_ + "before", folder_ + "after");
  EXPECT_EQ(Log("attempt_0/0/stdout.log").size(), 5000000);
  // The checksum is that of 5,000,000 lines "[default0]:".
  EXPECT_EQ(RunScript("yes '[default0]:' | head -c $((5000000 * 12)) | md5sum | cmp - <(cat $D/seen)"), 0);
}

TEST_F(LaunchOutputTest, DoesNotHoldUpASignal) {
  const pid_t pid = StartScript(R"(mkfifo $D/pipe; exec 3<>$D/pipe
      exec $LAUNCH --tee=1 --log-dir=${D}logs bash -c 'echo $$ > $D/rank; yes' >&3)");
  const pid_t rank = AwaitPid(folder_ + "rank");
  EXPECT_TRUE(Eventually([&] { return Log("attempt_0/0/stdout.log").size() >= 4096; }));
  const absl::Time start = absl::Now();
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 143);
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  EXPECT_TRUE(testing::Gone(rank));
  EXPECT_EQ(Err(), "launch: the launcher received signal 15 (SIGTERM); 1 rank was ended\n");
}

TEST_F(LaunchOutputTest, GoesOnInFilesIfStdoutIsClosed) {
  EXPECT_EQ(RunScript(R"($LAUNCH --tee=3 --log-dir=${D}logs bash -c '
      for i in {1..20000}; do echo line; done; echo end' | true; exit ${PIPESTATUS[0]})"),
            0);
  EXPECT_THAT(Err(), MatchesRegex(absl::StrCat("launch: stdout shows no more output of the ranks: Broken pipe; it goes "
                                               "on in ",
                                               folder_, "logs/none_[a-z0-9]{8}\n")));
  EXPECT_EQ(Log("attempt_0/0/stdout.log").size(), 20000 * 5 + 4);
}

TEST_F(LaunchOutputTest, GoesOnInFilesIfStdoutAndStderrAreClosed) {
  EXPECT_EQ(RunScript(R"($LAUNCH --tee=3 --log-dir=${D}logs bash -c '
      for i in {1..20000}; do echo line; echo line >&2; done; exit 7' 2>&1 | true; exit ${PIPESTATUS[0]})"),
            7);
  EXPECT_EQ(Log("attempt_0/0/stdout.log").size(), 20000 * 5);
  EXPECT_EQ(Log("attempt_0/0/stderr.log").size(), 20000 * 5);
  EXPECT_EQ(RunScript("$LAUNCH sh -c 'sleep 0.2; exit 7' 2>&1 | true; exit ${PIPESTATUS[0]}"), 7);
  EXPECT_EQ(RunScript("$LAUNCH --tee=3 --log-dir=${D}closed echo hello >&- 2>&-"), 0);
  EXPECT_EQ(RunScript("$LAUNCH echo hello >&- 2>&-"), 0);
}

TEST_F(LaunchOutputTest, IsShownOnIfAFileCannotBeWritten) {
  EXPECT_EQ(RunScript(R"((ulimit -f 8; exec $LAUNCH --tee=1 --log-dir=${D}logs bash -c '
      for i in {1..20000}; do echo line $i; done') | tail -n 1 > $D/last; exit ${PIPESTATUS[0]})"),
            0);
  EXPECT_EQ(Err(),
            absl::StrCat("launch: log file ", LogPath("attempt_0/0/stdout.log"), " ends here: File too large\n"));
  EXPECT_EQ(ReadFile(folder_ + "last"), "[default0]:line 20000\n");
  EXPECT_EQ(Log("attempt_0/0/stdout.log").size(), 8192);
}

TEST_F(LaunchOutputTest, SaysWhichFilesHaveEndedIfStdoutIsClosedToo) {
  EXPECT_EQ(RunScript(R"((ulimit -f 8; exec $LAUNCH --tee=1 --log-dir=${D}logs bash -c '
      for i in {1..20000}; do echo line $i; done') | { head -c 100000 > /dev/null; }; exit ${PIPESTATUS[0]})"),
            0);
  EXPECT_THAT(Err(),
              HasSubstr("attempt_0/0/stdout.log ends here: File too large\nlaunch: stdout shows no more output of "
                        "the ranks: Broken pipe; it goes on in "));
  EXPECT_THAT(Err(), HasSubstr(", except for the files that have ended\n"));
}

TEST_F(LaunchOutputTest, NamesADiskThatRanksHaveFilled) {
  const int code = RunScript(R"(mkdir ${D}disk; exec unshare -rm bash -c '
      mount -t tmpfs -o size=64k small ${D}disk || exit 77
      $LAUNCH --redirects=1 --log-dir=${D}disk sh -c "head -c 100000 /dev/zero 2> /dev/null; true"')");
  if (code == 77) GTEST_SKIP() << "no disk can be mounted here: " << Err();
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Err(), MatchesRegex(absl::StrCat("launch: the disk of ", folder_,
                                               "disk/none_[a-z0-9]{8} is full, so the files of ranks in it may end "
                                               "early\n")));
}

TEST_F(LaunchOutputTest, NeedsAFolderThatCanBeWritten) {
  EXPECT_EQ(RunScript("echo > ${D}file; $LAUNCH --tee=1 --log-dir=${D}file/logs touch $D/started"), 1);
  EXPECT_EQ(Err(), absl::StrCat("launch: log folder ", folder_, "file cannot be created: Not a directory\n"));
  EXPECT_NE(access((folder_ + "started").c_str(), F_OK), 0);
}

TEST_F(LaunchOutputTest, NeedsDescriptors) {
  EXPECT_EQ(RunScript("ulimit -Sn 64; $LAUNCH --nproc_per_node=256 --tee=3 --log-dir=${D}logs touch $D/started"), 1);
  EXPECT_THAT(Err(), MatchesRegex("launch: 256 ranks: opening 1808 descriptors, of which [0-9]+ "
                                  "are free: Too many open files \\(the soft limit of open files is 64 "
                                  "\\(RLIMIT_NOFILE\\); raise it with ulimit -n\\)\n"));
  EXPECT_NE(access((folder_ + "started").c_str(), F_OK), 0);
}

TEST_F(LaunchOutputTest, OfManyRanksNeedsTheUsualLimitOfDescriptors) {
  EXPECT_EQ(RunScript("ulimit -Sn 1024; $LAUNCH --nproc_per_node=64 --tee=3 --log-dir=${D}logs sh -c 'echo $RANK'"), 0)
      << Err();
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(Out(), '\n', absl::SkipEmpty())).size(), 64);
}

TEST_F(LaunchOutputTest, OfAProcessThatIsLeftBehindHoldsNothingUp) {
  const absl::Time start = absl::Now();
  EXPECT_EQ(RunScript(R"($LAUNCH --tee=3 --log-dir=${D}logs bash -c '
      setsid bash -c "echo \$\$ > $D/left; while echo y; do sleep 0.01; done" & until [ -s $D/left ]; do sleep 0.01; done; echo last >&2')"),
            0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  EXPECT_EQ(Err(), "[default0]:last\n");
  const pid_t left = AwaitPid(folder_ + "left");
  EXPECT_TRUE(Eventually([&] { return testing::Gone(left); })) << left;
}

TEST_F(LaunchOutputTest, EndsAFailuresMessage) {
  const std::string program =
      R"( --nproc_per_node=2 --log-dir=${D}logs bash -c '[ $RANK = 1 ] || exec sleep 60
          for i in {1..12}; do printf "line $i\a\n" >&2; done; exit 3')";
  for (const char* flag : {"--redirects=2", "-t2"}) {
    EXPECT_EQ(RunScript(absl::StrCat("rm -rf $D/logs; $LAUNCH ", flag, program,
                                     " 2>&1 | grep -v default1; exit ${PIPESTATUS[0]}")),
              3);
    EXPECT_THAT(Out(),
                MatchesRegex(absl::StrCat(
                    "launch: rank 1 \\(local rank 1, pid [0-9]+\\) exited with code 3; the other rank was ended\n"
                    "launch: the last lines of ",
                    LogPath("attempt_0/1/stderr.log"),
                    ":\n"
                    "  line 3\\\\x07\n  line 4\\\\x07\n  line 5\\\\x07\n  line 6\\\\x07\n  line 7\\\\x07\n"
                    "  line 8\\\\x07\n  line 9\\\\x07\n  line 10\\\\x07\n  line 11\\\\x07\n  line 12\\\\x07\n")));
  }
}

}  // namespace
}  // namespace lockstep::launch
