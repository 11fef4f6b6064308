// The trainer as its users run it: a program with flags.

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/imagenet/testing/striped_images.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples::imagenet {
namespace {

using launch::testing::Eventually;
using launch::testing::NewFolder;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Program;
using testing::RunProgram;
using ::testing::UnorderedElementsAre;
using testing::WriteStripedImages;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// 10 batches of 4 to an epoch, for two ranks or one.
Words Small(const std::string& folder) {
  return {"--dummy",
          "--dummy-train-images=40",
          "--dummy-val-images=13",
          "--image-size=16",
          "--num-classes=7",
          "-b4",
          "-p1",
          "--lr=0.01",
          "--seed=3",
          "-j2",
          "--checkpoint-dir=" + folder,
          "--json-file=" + folder + "json"};
}

Words Train(const Words& flags) { return Words{getenv("TRAIN")} + flags; }

Words OnRanks(int ranks, const Words& flags) {
  return Words{getenv("LAUNCH"), absl::StrCat("--nproc_per_node=", ranks)} + Train(flags);
}

std::vector<nlohmann::json> Events(const std::string& folder, const std::string& event) {
  std::vector<nlohmann::json> found;
  std::ifstream file(folder + "json");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_discarded() && json["event"] == event) found.push_back(json);
  }
  return found;
}

// Small() has 10 steps to an epoch.
std::string CheckpointOf(const std::string& folder, int64_t step) {
  return absl::StrFormat("%sstep_%08d.pt", folder, step);
}

checkpoint::Value Loaded(const std::string& path) {
  const absl::StatusOr<checkpoint::Value> value = checkpoint::Load(path);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : checkpoint::Value();
}

std::vector<std::string> Checkpoints(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".pt") files.push_back(entry.path());
  }
  return files;
}

// The checkpoint of a run that has saved once.
std::string OnlyCheckpoint(const std::string& folder) {
  const std::vector<std::string> files = Checkpoints(folder);
  EXPECT_EQ(files.size(), 1);
  return files.empty() ? "" : files[0];
}

// Returns the folder of two ranks' checkpoints after two epochs that nothing interrupted.
const std::string& WholeRun() {
  static const std::string* const folder = [] {
    auto* made = new std::string(NewFolder());
    int code;
    const std::string output = RunProgram(OnRanks(2, Small(*made) + Words{"--epochs=2", "--resume=auto"}), &code);
    EXPECT_EQ(code, 0) << output;
    EXPECT_THAT(output, HasSubstr("=> --resume=auto: there is no checkpoint in " + *made +
                                  " yet, so training begins\n"
                                  "Epoch: [0][0/10]\tfirst batch ...\n"));
    EXPECT_THAT(output, HasSubstr("  elapsed 0:00:0"));
    EXPECT_THAT(output, HasSubstr("Epoch: [1][10/10]\tTime "));
    EXPECT_THAT(output, HasSubstr(" *   Acc@1 "));
    return made;
  }();
  return *folder;
}

TEST(Train, TellsWhatItDoesAndValidatesEveryImageOnce) {
  const auto steps = Events(WholeRun(), "step"), validations = Events(WholeRun(), "validation");
  ASSERT_EQ(steps.size(), 20);
  EXPECT_EQ(steps[19]["epoch"], 1);
  EXPECT_EQ(steps[19]["batch"], 10);
  ASSERT_EQ(validations.size(), 2);
  EXPECT_EQ(validations[1]["images"], 13);
  EXPECT_EQ(Events(WholeRun(), "epoch").size(), 2);
}

TEST(Train, ACheckpointHasWhatPythonsExampleReads) {
  const checkpoint::Value file = Loaded(CheckpointOf(WholeRun(), 20));
  EXPECT_EQ(*checkpoint::GetInt(file, "epoch"), 2);
  EXPECT_EQ(*checkpoint::GetString(file, "arch"), "resnet18");
  EXPECT_TRUE(checkpoint::GetTensor(file, {"state_dict", "layer1.0.conv1.weight"}).ok());
  EXPECT_TRUE(checkpoint::GetDict(file, {"optimizer", "state"}).ok());
  EXPECT_EQ(*checkpoint::GetInt(file, {"scheduler", "last_epoch"}), 2);
  const double best = checkpoint::GetTensor(file, "best_acc1")->item<double>();
  const auto validations = Events(WholeRun(), "validation");
  EXPECT_EQ(best, std::max(validations[0]["acc1"].get<double>(), validations[1]["acc1"].get<double>()));
  const checkpoint::Value model_best = Loaded(WholeRun() + "model_best.pt");
  EXPECT_EQ(checkpoint::GetTensor(model_best, "best_acc1")->item<double>(), best);
}

TEST(Train, EvaluatesACheckpointToWhatTrainingFound) {
  const std::string folder = NewFolder();
  for (const int ranks : {1, 3}) {
    int code;
    const std::string output =
        RunProgram(OnRanks(ranks, Small(folder) + Words{"-e", "-b3", "--schedule=cosine", "--seed=4", "--resume",
                                                        CheckpointOf(WholeRun(), 20)}),
                   &code);
    ASSERT_EQ(code, 0) << output;
    const auto found = Events(folder, "validation"), expected = Events(WholeRun(), "validation");
    EXPECT_EQ(found.back()["acc1"], expected.back()["acc1"]) << output;
    EXPECT_EQ(found.back()["acc5"], expected.back()["acc5"]);
    EXPECT_NEAR(found.back()["loss"].get<double>(), expected.back()["loss"].get<double>(), 1e-3);
  }
  EXPECT_THAT(Checkpoints(folder), IsEmpty());
}

// Until `count` steps are told.
void AwaitSteps(const std::string& folder, size_t count) {
  EXPECT_TRUE(Eventually([&] { return Events(folder, "step").size() >= count; }, absl::Seconds(60)));
}

TEST(Train, KilledInMidEpochItResumesToTheSameBits) {
  const std::string folder = NewFolder();
  const Words flags = Small(folder) + Words{"--epochs=2", "--checkpoint-every=3"};
  Program run(OnRanks(2, flags));
  AwaitSteps(folder, 14);
  ASSERT_EQ(run.Ranks().size(), 2) << run.Output();
  kill(run.Ranks().at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
  int code;
  const std::string resumed = RunProgram(OnRanks(2, flags + Words{"--resume=auto"}), &code);
  ASSERT_EQ(code, 0) << resumed;
  EXPECT_THAT(resumed, ContainsRegex("step_000000[0-9]+[.]pt' \\(epoch 1, "));
  EXPECT_THAT(resumed, Not(HasSubstr(", 0 of 10 batches done)")));
  EXPECT_TRUE(checkpoint::Identical(Loaded(CheckpointOf(WholeRun(), 20)), Loaded(CheckpointOf(folder, 20))));
}

TEST(Train, ASignalSavesAndExitsWithTheResumableCodeAndOneRankGoesOn) {
  const std::string folder = NewFolder();
  const Words flags = Small(folder) + Words{"--epochs=2"};
  Program run(OnRanks(2, flags));
  AwaitSteps(folder, 5);
  kill(run.pid(), SIGUSR1);  // the launcher's
  EXPECT_EQ(run.Wait(), 75) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("stopped by a signal; go on with --resume=auto"));
  const std::string saved = OnlyCheckpoint(folder);
  int code;
  const std::string resumed =
      RunProgram(Train(flags + Words{"--resume=" + saved, "--epochs=1", "--dist-backend=gloo"}), &code);
  EXPECT_EQ(code, 0) << resumed;
  EXPECT_THAT(resumed, HasSubstr("Epoch: [0][10/10]"));
  EXPECT_EQ(*checkpoint::GetInt(Loaded(CheckpointOf(folder, 10)), "epoch"), 1);
}

TEST(Train, StartsItsOwnRanksWhichSaveWhenTheirParentIsToldToEnd) {
  const std::string folder = NewFolder();
  Program run(Train(Small(folder) + Words{"--multiprocessing-distributed", "--cpu-ranks=2"}));
  AwaitSteps(folder, 3);
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.Wait(), 75) << run.Output();
  EXPECT_THAT(OnlyCheckpoint(folder), ContainsRegex("/step_[0-9]+[.]pt$"));
}

// Rank 0 alone writes it; the others only hear that it has failed, in a collective or in the manager's barrier.
TEST(Train, AJsonFileThatCannotBeWrittenIsTheFirstCause) {
  const Words flags = Small(NewFolder()) + Words{"--json-file=/dev/full"};
  const std::string error = "--json-file=/dev/full: cannot be written: No space left on device";
  const std::string line = "rank 0 \\(local rank 0, pid [0-9]+\\) exited with code 1: " + error + "; ";
  int code;
  const std::string launched = RunProgram(OnRanks(2, flags), &code);
  EXPECT_THAT(launched, ContainsRegex("launch: " + line));
  EXPECT_THAT(launched, ContainsRegex("train: rank 1: ([a-z_]+ #[0-9]+ .*: )?rank 0 \\(.*\\) failed: " + error));
  EXPECT_THAT(RunProgram(Train(flags + Words{"--multiprocessing-distributed", "--cpu-ranks=2"}), &code),
              ContainsRegex("train: " + line));
  EXPECT_EQ(code, 1);
}

// A stopped rank answers nobody, SIGTERM neither.
TEST(Train, AStoppedRankEndsItsOwnRanksSoonAfterTheTimeout) {
  const std::string folder = NewFolder();
  Program run(Train(Small(folder) +
                    Words{"--multiprocessing-distributed", "--cpu-ranks=2", "--dist-timeout=2", "--epochs=1000"}));
  AwaitSteps(folder, 1);
  kill(run.Ranks().at(1), SIGSTOP);
  EXPECT_EQ(run.Wait(absl::Seconds(20)), 1) << run.Output();
  EXPECT_THAT(run.Output(),
              ContainsRegex("train: rank 0 .* exited with code 1: .*timed out after 2s: rank 1 .* is stopped; "
                            "the other rank was ended by SIGKILL; rank 1 .* was stopped"));
}

// All that can be switched on at once on the CPU.
TEST(Train, OptionsTrainTogether) {
  const std::string folder = NewFolder();
  int code;
  const std::string output = RunProgram(
      OnRanks(2, Small(folder) + Words{"--epochs=2", "--amp=bf16", "--channels-last", "--accum-steps=3",
                                       "--ema-decay=0.9", "--label-smoothing=0.1", "--schedule=cosine",
                                       "--warmup-epochs=1", "--tensorboard-dir=" + folder + "events",
                                       "--trace-file=" + folder + "trace", "--trace-begin=2", "--trace-steps=2"}),
      &code);
  ASSERT_EQ(code, 0) << output;
  const auto steps = Events(folder, "step");
  ASSERT_EQ(steps.size(), 20);
  EXPECT_NEAR(steps[0]["lr"].get<double>(), 0.01 * 0.01, 1e-12);
  EXPECT_NEAR(steps[19]["lr"].get<double>(), 0.01, 1e-12);
  const checkpoint::Value file = Loaded(CheckpointOf(folder, 8));
  EXPECT_FALSE(checkpoint::Identical(*checkpoint::Get(file, "state_dict"), *checkpoint::Get(file, "model_ema")));
  EXPECT_FALSE(std::filesystem::is_empty(folder + "events"));
  const auto trace = nlohmann::json::parse(launch::testing::ReadFile(folder + "trace"), nullptr, false);
  EXPECT_TRUE(trace.is_array() && trace.size() > 100);
}

// The average of weights and a schedule of steps go on from the middle of an epoch too.
TEST(Train, AWarmupOfStepsGoesOnInMidEpochToTheSameBits) {
  const std::string whole = NewFolder(), parts = NewFolder();
  const Words flags = {"--epochs=1", "--schedule=polynomial", "--warmup-steps=4", "--ema-decay=0.9",
                       "--checkpoint-every=5"};
  int code;
  std::string output = RunProgram(Train(Small(whole) + flags), &code);
  ASSERT_EQ(code, 0) << output;
  const auto steps = Events(whole, "step");
  ASSERT_EQ(steps.size(), 10);
  EXPECT_NEAR(steps[0]["lr"].get<double>(), 0.01 * 0.01, 1e-12);
  EXPECT_NEAR(steps[4]["lr"].get<double>(), 0.01, 1e-12);
  EXPECT_NEAR(steps[7]["lr"].get<double>(), 0.01 / 4, 1e-12);
  output = RunProgram(Train(Small(parts) + flags + Words{"--resume=" + CheckpointOf(whole, 5)}), &code);
  ASSERT_EQ(code, 0) << output;
  EXPECT_TRUE(checkpoint::Identical(Loaded(CheckpointOf(whole, 10)), Loaded(CheckpointOf(parts, 10))));
}

TEST(Train, LearnsToTellTheImagesOfTwoFoldersApartAndNamesOneThatIsDamaged) {
  const std::string data = NewFolder(), folder = NewFolder();
  WriteStripedImages(data + "train", 24);
  WriteStripedImages(data + "val", 5);
  const Words flags = {data,
                       "--image-size=24",
                       "-b16",
                       "-p1",
                       "--lr=0.002",
                       "--seed=3",
                       "--epochs=4",
                       "--channels-last",
                       "--checkpoint-dir=" + folder,
                       "--json-file=" + folder + "json"};
  int code;
  std::string output = RunProgram(OnRanks(2, flags), &code);
  ASSERT_EQ(code, 0) << output;
  EXPECT_EQ(Events(folder, "validation").back()["images"], 10);
  EXPECT_GT(Events(folder, "epoch").back()["acc1"], 80) << output;
  EXPECT_EQ(checkpoint::GetTensor(Loaded(CheckpointOf(folder, 12)), {"state_dict", "fc.weight"})->size(0), 2);

  std::ofstream(data + "train/dog/1.jpg") << "no image";
  const Words elsewhere = flags + Words{"--checkpoint-dir=" + NewFolder()};
  output = RunProgram(Train(elsewhere), &code);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, HasSubstr("train/dog/1.jpg: "));
  output = RunProgram(Train(elsewhere + Words{"--max-skipped=1", "--epochs=1"}), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("rank 0 skipped: "));
}

// Runs the trainer, which must fail quickly with one line that has `message`.
void ExpectError(const Words& flags, const std::string& message, int expected_code = 1) {
  int code;
  std::string output = RunProgram(Train(flags), &code);
  EXPECT_EQ(code, expected_code) << output;
  EXPECT_THAT(output, HasSubstr(message));
}

TEST(Train, AFolderWithLaterCheckpointsIsRefused) {
  const Words flags = Small(NewFolder()) + Words{"--checkpoint-dir=" + WholeRun()};
  const std::string error =
      "expected a folder without later checkpoints, but it has that of step 20; continue its run "
      "with --resume=auto, or choose another folder";
  ExpectError(flags, error);
  ExpectError(flags + Words{"--resume=" + CheckpointOf(WholeRun(), 10)}, error);
}

TEST(Train, TheLastCheckpointsAreKept) {
  const std::string folder = NewFolder();
  int code;
  const std::string output =
      RunProgram(Train(Small(folder) + Words{"--epochs=1", "--checkpoint-every=2", "--keep-last=2"}), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(Checkpoints(folder),
              UnorderedElementsAre(CheckpointOf(folder, 8), CheckpointOf(folder, 10), folder + "model_best.pt"));
}

TEST(Train, ClassesOfOneFolderOnlyAreNamed) {
  const std::string data = NewFolder();
  for (const char* const name : {"train/a", "train/b", "train/c\x1b[2J", "train/d", "val/a", "val/e"}) {
    std::filesystem::create_directories(data + name);
    std::ofstream(data + name + "/1.jpg") << "not read";
  }
  ExpectError(
      {data, "--checkpoint-dir=" + NewFolder()},
      data + ": train/ and val/ have different classes: 3 only in train/ (b, c\\x1b[2J, d), 1 only in val/ (e)");
}

TEST(Train, ALossThatIsNanIsToldOnceAndEndsTheRunIfWanted) {
  const Words flags = Small(NewFolder()) + Words{"--epochs=1", "--lr=1e9", "--dummy-val-images=2"};
  int code;
  const std::string output = RunProgram(OnRanks(2, flags), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, ContainsRegex("warning: rank [01]: the loss of epoch 0, batch [0-9]+ is -?(nan|inf)"));
  EXPECT_EQ(output.find("warning: rank"), output.rfind("warning: rank")) << output;
  EXPECT_THAT(RunProgram(OnRanks(2, flags + Words{"--terminate-on-nan", "--checkpoint-dir=" + NewFolder()}), &code),
              ContainsRegex("rank [01].*: the loss of epoch 0, batch [0-9]+ is -?(nan|inf), at which "
                            "--terminate-on-nan ends the run"));
  EXPECT_EQ(code, 1);
}

TEST(Train, PretrainedWithAnotherNumberOfClassesBeginsTheLastLayerAnew) {
  const std::string folder = NewFolder();
  int code;
  std::string output = RunProgram(OnRanks(2, Small(folder) + Words{"--epochs=1"}), &code);
  ASSERT_EQ(code, 0) << output;
  const std::string file = folder + "/model_best.pt";
  const Words other = Small(NewFolder()) + Words{"--epochs=1", "--num-classes=5", "--pretrained=" + file};
  output = RunProgram(OnRanks(2, other + Words{"--freeze-backbone"}), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, ContainsRegex("=> --pretrained: .*model_best.pt has 7 classes, and the data 5: the layer fc "
                                    "begins anew"));
  output = RunProgram(Train(other + Words{"--evaluate"}), &code);
  EXPECT_EQ(code, 1) << output;
  EXPECT_THAT(output, ContainsRegex("--pretrained: .*model_best.pt: it has 7 classes, and the data 5: expected the "
                                    "same number with --evaluate"));
}

TEST(Train, ADryRunWritesNothing) {
  const std::string folder = NewFolder();
  int code;
  const std::string output = RunProgram(OnRanks(2, Small(folder) + Words{"--dry-run"}), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("dry run: 2 ranks on the CPU, 40 training and 13 validation images of 7 classes, 10 "
                                "batches of 2 x 2 an epoch; loss of the first batch "));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(Train, BadFlagsAreNamed) {
  ExpectError({"--no-such-flag"}, "train: unknown flag --no-such-flag", 2);
  ExpectError({}, "train: expected the folder of the images, or --dummy");
  ExpectError({"a", "b"}, "train: unexpected argument \"b\"", 2);
  ExpectError({"--dummy", "-a", "resnet19"}, "train: --arch=resnet19: expected one of resnet18, ");
  ExpectError({"--dummy", "--amp=int8"}, "train: --amp=int8: expected bf16 or fp16");
  ExpectError(
      {"--dummy", "--schedule=square"},
      "train: --schedule=square: expected step, cosine, linear, polynomial, warm_restarts, one_cycle or plateau");
  ExpectError({"--dummy", "--epochs=1", "--dummy-train-images=40", "-b4", "--warmup-steps=10",
               "--checkpoint-dir=" + NewFolder()},
              "train: --warmup-steps=10: expected less than the 10 steps of the run");
  ExpectError({"--dummy", "--seed=x"}, "train: --seed=x: expected a whole number");
  ExpectError({"--dummy", "--world-size=0"}, "train: --world-size=0: expected 1 or more");
  ExpectError({"--dummy", "--dist-timeout=inf"}, "train: --dist-timeout=inf: expected a positive number of seconds");
  const std::string folder = NewFolder();
  ExpectError({"--dummy", "-e", "--resume=auto", "--checkpoint-dir=" + folder},
              "train: --resume=auto: expected a checkpoint in " + folder + ", which has none");
  ExpectError({"--dummy", "--world-size=2"}, "train: --world-size=2: expected --rank with it");
  ExpectError({"--dummy", "--amp=fp16", "--checkpoint-dir=" + NewFolder()},
              "train: --amp=fp16 needs a GPU; on the CPU there is --amp=bf16");
  ExpectError({"--dummy", "--virtual-ranks=1", "--dist-backend=nccl", "--checkpoint-dir=" + NewFolder()},
              "this program was built without CUDA; build it with --config=cuda");
  ExpectError({"--dummy", "--gpu=99", "--checkpoint-dir=" + NewFolder()},
              "train: --gpu=99: expected one of this machine's ");
}

TEST(Train, AnOutputThatIsLostIsAnError) {
  const auto flags = [] { return Small(NewFolder()) + Words{"--epochs=1"}; };
  ExpectError(flags() + Words{"--trace-file=/no/such/trace"},
              "train: --trace-file=/no/such/trace: no file can be created there: No such file or directory");
  const std::string full = ": cannot be written: No space left on device";
  ExpectError(flags() + Words{"--trace-file=/dev/full", "--trace-begin=1", "--trace-steps=2"},
              "train: --trace-file=/dev/full" + full);
  ExpectError(flags() + Words{"--json-file=/dev/full"}, "train: --json-file=/dev/full" + full);
}

TEST(Train, ACheckpointOfAnotherModelOrSeedIsRefused) {
  const Words resume = Small(NewFolder()) + Words{"--resume=" + CheckpointOf(WholeRun(), 20)};
  ExpectError(resume + Words{"-a", "resnet34"},
              "step_00000020.pt: it is of another model: expected arch \"resnet34\", found \"resnet18\"");
  ExpectError(resume + Words{"--optimizer=adamw"},
              "step_00000020.pt: --optimizer=adamw: expected sgd, as in the checkpoint");
  ExpectError(resume + Words{"--seed=4"},
              "step_00000020.pt: VirtualRankSampler: DistributedSampler::Restore: seed: expected 4, found 3");
  ExpectError(resume + Words{"--num-classes=8"}, "fc.weight");
}

}  // namespace
}  // namespace lockstep::examples::imagenet
