// The trainer under Lockstep's launch, as a user runs it, while ranks die.

#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples::imagenet {
namespace {

using launch::testing::NewFolder;
using launch::testing::ReadFile;
using ::testing::HasSubstr;
using testing::Program;
using testing::RunProgram;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// 80 images are 10 batches an epoch, in 5 steps. There are checkpoints after each second step and after each epoch.
constexpr int kSaved = 6;
constexpr char kLast[] = "step_00000010.pt";

Words Train(const std::string& folder) {
  return {getenv("TRAIN"),
          "--dummy",
          "--dummy-train-images=80",
          "--dummy-val-images=10",
          "--num-classes=5",
          "--image-size=24",
          "-b8",
          "--accum-steps=2",
          "--dropout=0.2",
          "--ema-decay=0.9",
          "--lr=0.01",
          "--warmup-epochs=1",
          "--epochs=2",
          "--seed=3",
          "-j2",
          "-p1",
          "--keep-last=0",
          "--checkpoint-every=2",
          "--checkpoint-dir=" + folder,
          "--json-file=" + folder + "json"};
}

Words Launched(const Words& train, int ranks = 3) {
  return Words{getenv("LAUNCH"), "--standalone", absl::StrCat("--nproc-per-node=", ranks), "--grace=30"} + train;
}

const Words kVirtual = {"--virtual-ranks=4"};

// The JSON lines of epochs and validations, apart from speeds.
std::string Figures(const std::string& folder) {
  std::string figures;
  std::ifstream file(folder + "json");
  for (std::string line; std::getline(file, line);) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.value("event", "") == "step") continue;
    json.erase("images_per_second");
    json.erase("data_share");
    absl::StrAppend(&figures, json.dump(), "\n");
  }
  return figures;
}

// The hashes of the files of all saved steps, and of the best one.
std::map<std::string, size_t> Digests(const std::string& folder) {
  std::map<std::string, size_t> digests;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (absl::EndsWith(name, ".pt")) digests[name] = std::hash<std::string>()(ReadFile(entry.path()));
  }
  return digests;
}

// A run that nothing disturbed.
struct Quiet {
  std::map<std::string, size_t> digests;
  std::string figures;
};
const Quiet& QuietRun() {
  static const Quiet* const quiet = [] {
    const std::string folder = NewFolder();
    int code;
    const std::string output = RunProgram(Launched(Train(folder) + kVirtual, 2), &code);
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(Digests(folder).size(), kSaved + 1) << output;
    return new Quiet{Digests(folder), Figures(folder)};
  }();
  return *quiet;
}

TEST(Elastic, RanksThatDieChangeNeitherACheckpointNorTheFigures) {
  const std::string folder = NewFolder();
  Program run(Launched(Train(folder) + kVirtual));
  ASSERT_TRUE(run.AwaitText("Epoch: [0][ 3/10]")) << run.Output();
  const std::map<int, pid_t> ranks = run.Ranks();
  ASSERT_EQ(ranks.size(), 3) << run.Output();
  kill(ranks.at(0), SIGKILL);
  ASSERT_TRUE(run.AwaitText("Epoch: [1][ 3/10]")) << run.Output();
  // The new rank has trained a step, so that it has the state of the others. The first line may be of the step before.
  ASSERT_TRUE(run.AwaitTexts({"generation 3 has 3 ranks", "Epoch: [1][ ", "Epoch: [1]["})) << run.Output();
  kill(ranks.at(1), SIGKILL);
  kill(ranks.at(2), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr(absl::StrCat("(local rank 1, pid ", ranks.at(1), ") was killed by signal 9")));
  EXPECT_EQ(Digests(folder), QuietRun().digests) << run.Output();
  EXPECT_EQ(Figures(folder), QuietRun().figures) << run.Output();
}

TEST(Elastic, ARunThatIsStoppedOrWhoseRanksAllDiedResumesToTheSameBits) {
  const std::string folder = NewFolder();
  {
    Program run(Launched(Train(folder) + kVirtual));
    ASSERT_TRUE(run.AwaitText("Epoch: [0][ 5/10]")) << run.Output();
  }  // the launcher is killed, and the ranks with it
  const Words resumed = Train(folder) + kVirtual + Words{"--resume=auto"};
  {
    Program run(Launched(resumed, 2));
    ASSERT_TRUE(run.AwaitText("Epoch: [0][ 9/10]")) << run.Output();
    EXPECT_THAT(run.Output(), HasSubstr("batches done)"));
    kill(run.pid(), SIGTERM);
    EXPECT_EQ(run.Wait(), 143) << run.Output();
    EXPECT_THAT(run.Output(), HasSubstr("train: stopped by a signal; go on with --resume=auto"));
  }
  {
    Program run(Launched(resumed, 2));
    ASSERT_TRUE(run.AwaitText("Epoch: [1][ 2/10]")) << run.Output();
    kill(run.Ranks().at(1), SIGUSR1);
    EXPECT_EQ(run.Wait(), 75) << run.Output();
    EXPECT_THAT(run.Output(), HasSubstr("exited with code 75; the job can be started again"));
  }
  Program run(resumed + Words{"--multiprocessing-distributed", "--cpu-ranks=2"});
  ASSERT_TRUE(run.AwaitText("batches done)")) << run.Output();
  kill(run.Ranks().at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has "));
  EXPECT_EQ(Digests(folder)[kLast], QuietRun().digests.at(kLast)) << run.Output();
}

TEST(Elastic, WithoutVirtualRanksTheOthersGoOn) {
  const std::string folder = NewFolder();
  // The last batch of a rank may be one image, of which BatchNorm must see more than one pixel.
  Program run(Launched(Train(folder) + Words{"--elastic", "--image-size=40"}));
  ASSERT_TRUE(run.AwaitText("Epoch: [0][ 3/")) << run.Output();
  kill(run.Ranks().at(2), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("generation 2 has 2 ranks"));
  EXPECT_THAT(Figures(folder), HasSubstr("\"epoch\":1,\"event\":\"validation\",\"images\":10"));
}

TEST(Elastic, ALossThatIsNotFiniteEndsTheJob) {
  Program run(Launched(Train(NewFolder()) + kVirtual + Words{"--lr=1e9", "--terminate-on-nan"}, 1));
  EXPECT_EQ(run.Wait(), 1) << run.Output();
  EXPECT_THAT(run.Output(),
              HasSubstr(", at which --terminate-on-nan ends the run; the job ends, since this cause came 3 times"));
}

// Nobody numbers these ranks anew, so they end when one of them dies.
TEST(Elastic, RanksThatFlagsNumberDoNotRegroup) {
  const std::string folder = NewFolder();
  const Words train = Train(folder) + kVirtual + Words{"--epochs=1000", "--world-size=2"};
  Program first(train + Words{"--rank=0", "--dist-url=file://" + folder + "store"});
  Program second(train + Words{"--rank=1", "--dist-url=file://" + folder + "store"});
  ASSERT_TRUE(first.AwaitText("Epoch: [0][ 3/10]")) << first.Output();
  kill(second.pid(), SIGKILL);
  EXPECT_EQ(first.Wait(), 1) << first.Output();
  EXPECT_THAT(first.Output(), HasSubstr("train: rank 0: "));
  EXPECT_THAT(first.Output(), HasSubstr("rank 1 (host "));
}

TEST(Elastic, AValidationGoesOnWhenARankDies) {
  const std::string folder = NewFolder();
  Program run(Launched(Train(folder) + kVirtual + Words{"--evaluate", "--dummy-val-images=1000"}));
  ASSERT_TRUE(run.AwaitText("Test: [")) << run.Output();
  kill(run.Ranks().at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has "));
  EXPECT_THAT(Figures(folder), HasSubstr("\"images\":1000"));
}

}  // namespace
}  // namespace lockstep::examples::imagenet
