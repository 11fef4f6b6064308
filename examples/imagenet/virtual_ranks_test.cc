// The trainer with --virtual-ranks: the same bits on any number of ranks, with BatchNorm, dropout and augmentation.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/imagenet/testing/striped_images.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/examples/program/testing/same_bits.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples::imagenet {
namespace {

using launch::testing::NewFolder;
using testing::DigestOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunOnTwoHosts;
using testing::RunProgram;
using testing::WriteStripedImages;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::string& Data() {
  static const std::string* const folder = [] {
    auto* made = new std::string(NewFolder());
    WriteStripedImages(*made + "train", 15);
    WriteStripedImages(*made + "val", 5);
    return made;
  }();
  return *folder;
}

// Each of 4 virtual ranks has 8 of 30 images, in batches of 3, 3 and 2. So each of the two epochs has two steps, of two
// batches and of one.
constexpr int kSteps = 4;

Words Train(const std::string& folder, const Words& more = {}) {
  return Words{getenv("TRAIN"),
               Data(),
               "--virtual-ranks=4",
               "-b12",
               "--accum-steps=2",
               "--image-size=40",
               "--dropout=0.2",
               "--ema-decay=0.9",
               "--lr=0.001",
               "--seed=3",
               "--epochs=2",
               "-j2",
               "-p1",
               "--checkpoint-dir=" + folder,
               "--json-file=" + folder + "json"} +
         more;
}

// Saves in mid-epoch too.
const Words kEachStep = {"--checkpoint-every=1", "--keep-last=0"};

std::string CheckpointOf(const std::string& folder, int step) {
  return absl::StrFormat("%sstep_%08d.pt", folder, step);
}

// The numbers of the JSON file, apart from speeds.
std::string Figures(const std::string& folder) {
  std::string figures;
  std::ifstream file(folder + "json");
  for (std::string line; std::getline(file, line);) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    json.erase("images_per_second");
    json.erase("data_share");
    absl::StrAppend(&figures, json.dump(), "\n");
  }
  return figures;
}

// The lines of whole epochs among them.
std::string EpochFigures(const std::string& folder) {
  std::string epochs;
  for (const absl::string_view line : absl::StrSplit(Figures(folder), '\n')) {
    if (absl::StrContains(line, "\"event\":\"epoch\"")) absl::StrAppend(&epochs, line, "\n");
  }
  return epochs;
}

// Returns the result of a run: the digest of its last checkpoint, and all figures.
std::string ResultOf(const std::string& folder, const std::string& output, int code, int steps = kSteps) {
  EXPECT_EQ(code, 0) << output;
  const std::string figures = Figures(folder);
  EXPECT_THAT(figures, HasSubstr("\"event\":\"validation\""));
  EXPECT_THAT(figures, Not(HasSubstr("null"))) << "a loss is NaN";
  return absl::StrCat(DigestOf(CheckpointOf(folder, steps)), "\n", figures);
}

Words OnRanks(int ranks, const Words& train) {
  return Words{getenv("LAUNCH"), absl::StrCat("--nproc_per_node=", ranks)} + train;
}

// The folder and the result of a run on as many ranks as virtual ranks, which nothing interrupted.
const std::string& WholeRun() {
  static const std::string* const folder = new std::string(NewFolder());
  return *folder;
}
const std::string& Whole() {
  static const std::string* const result = [] {
    int code;
    const std::string output = RunProgram(OnRanks(4, Train(WholeRun(), kEachStep)), &code);
    return new std::string(ResultOf(WholeRun(), output, code));
  }();
  return *result;
}

TEST(VirtualRanks, TrainToTheSameBitsOnAnyNumberOfRanks) {
  for (const auto& [ranks, backend] : std::map<int, std::string>{{2, "shm"}, {3, "gloo"}}) {
    const std::string folder = NewFolder();
    int code;
    const std::string output = RunProgram(OnRanks(ranks, Train(folder, {"--dist-backend=" + backend})), &code);
    EXPECT_EQ(ResultOf(folder, output, code), Whole()) << ranks << " ranks over " << backend;
  }
}

TEST(VirtualRanks, TrainToTheSameBitsInOneProcess) {
  const std::string folder = NewFolder();
  int code;
  const std::string output = RunProgram(Words{"/usr/bin/env", "-u", "OMP_NUM_THREADS"} + Train(folder), &code);
  EXPECT_EQ(ResultOf(folder, output, code), Whole());
}

TEST(VirtualRanks, TrainToTheSameBitsOnTwoHosts) {
  const std::string folder = NewFolder();
  int code;
  const std::string output = RunOnTwoHosts(2, Train(folder), &code);
  EXPECT_EQ(ResultOf(folder, output, code), Whole());
}

// A batch takes a second on processors without instructions for this type.
TEST(VirtualRanks, ComputeInBFloat16ToTheSameBits) {
  const Words small = {"--amp=bf16",
                       "--dummy",
                       "--dummy-train-images=8",
                       "--dummy-val-images=2",
                       "--image-size=16",
                       "--virtual-ranks=2",
                       "-b4",
                       "--epochs=1"};
  std::set<std::string> results;
  for (const int ranks : {1, 2}) {
    const std::string folder = NewFolder();
    int code;
    const std::string output = RunProgram(OnRanks(ranks, Train(folder, small)), &code);
    results.insert(ResultOf(folder, output, code, /*steps=*/1));
  }
  EXPECT_EQ(results.size(), 1);
}

TEST(VirtualRanks, GoOnInMidEpochOnOtherNumbersOfRanks) {
  ASSERT_NE(Whole(), "");
  std::string before = WholeRun();
  for (const auto& [ranks, step] : std::map<int, int>{{2, 1}, {3, 3}}) {
    const std::string folder = NewFolder();
    std::filesystem::copy(CheckpointOf(before, step), folder);
    int code;
    const std::string output = RunProgram(OnRanks(ranks, Train(folder, kEachStep + Words{"--resume=auto"})), &code);
    EXPECT_EQ(code, 0) << output;
    EXPECT_THAT(output, HasSubstr(", 2 of 3 batches done)"));
    EXPECT_EQ(DigestOf(CheckpointOf(folder, kSteps)), DigestOf(CheckpointOf(WholeRun(), kSteps))) << ranks << " ranks";
    const std::string epochs = EpochFigures(folder);
    EXPECT_NE(epochs, "");
    EXPECT_TRUE(absl::EndsWith(EpochFigures(WholeRun()), epochs)) << epochs << "is not in\n"
                                                                  << EpochFigures(WholeRun());
    before = folder;
  }
}

void ExpectError(const Words& command, const std::string& message) {
  int code;
  EXPECT_THAT(RunProgram(command, &code), HasSubstr(message));
  EXPECT_EQ(code, 1);
}

TEST(VirtualRanks, ADryRunHasTheirBatches) {
  int code;
  const std::string output = RunProgram(OnRanks(2, Train(NewFolder(), {"--dry-run"})), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("dry run: 2 ranks on the CPU, 30 training and 10 validation images of 2 classes, 3 "
                                "batches of 4 x 3 an epoch; loss of the first batch "));
}

TEST(VirtualRanks, WhatDoesNotFitIsNamed) {
  ExpectError(Train(NewFolder(), {"-b10"}), "train: --batch-size=10: expected a multiple of --virtual-ranks=4");
  ExpectError(Train(NewFolder(), {"--virtual-ranks=-1"}), "train: --virtual-ranks=-1: expected 0 or more");
  ExpectError(OnRanks(3, Train(NewFolder(), {"--virtual-ranks=2"})),
              "--virtual-ranks=2: expected 0, or at least the 3 ranks");
  ASSERT_NE(Whole(), "");
  const std::string last = CheckpointOf(WholeRun(), kSteps);
  for (const std::string other : {"12", "0"}) {
    ExpectError(Train(NewFolder(), {"--resume=" + last, "--virtual-ranks=" + other}),
                absl::StrCat("step_00000004.pt: --virtual-ranks=", other, ": expected 4, as in the checkpoint"));
  }
}

}  // namespace
}  // namespace lockstep::examples::imagenet
