#include "lockstep/examples/imagenet/config.h"

#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples::imagenet {
namespace {

using launch::testing::NewFolder;

std::string ErrorOf(const std::function<void(TrainConfig&)>& change) {
  TrainConfig config;
  config.dummy = true;
  config.checkpoint_dir = NewFolder();
  change(config);
  const absl::Status in_ranges = FlagsOf(config).Check();
  return std::string((in_ranges.ok() ? CheckConfig(config) : in_ranges).message());
}

TEST(Config, DefaultsAreValidAndHaveTheNumbersOfPythonsExample) {
  EXPECT_EQ(ErrorOf([](TrainConfig&) {}), "");
  const TrainConfig config;
  EXPECT_EQ(config.arch, "resnet18");
  EXPECT_EQ(config.workers, 4);
  EXPECT_EQ(config.epochs, 90);
  EXPECT_EQ(config.batch_size, 256);
  EXPECT_EQ(config.lr, 0.1);
  EXPECT_EQ(config.momentum, 0.9);
  EXPECT_EQ(config.weight_decay, 1e-4);
  EXPECT_EQ(config.print_freq, 10);
}

TEST(Config, ANumberOutOfItsRangeIsNamed) {
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.epochs = 0; }), "--epochs=0: expected 1 or more");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.lr = NAN; }), "--lr=nan: expected 0 or more");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.lr = INFINITY; }), "--lr=inf: expected at most 1000000000");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.momentum = INFINITY; }), "--momentum=inf: expected at most 1000000000");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.batch_size = -1; }), "--batch-size=-1: expected 1 or more");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.dropout = 1; }), "--dropout=1: expected 0 or more and less than 1");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.ema_decay = 1; }), "--ema-decay=1: expected 0 or more and less than 1");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.label_smoothing = 2; }),
            "--label-smoothing=2: expected a share from 0 to 1");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.warmup_epochs = 90; }),
            "--warmup-epochs=90: expected less than --epochs=90");
}

TEST(Config, AWarmupIsBeforeAScheduleThatBeginsAfterIt) {
  const auto error = [](const std::string& schedule, int64_t epochs, int64_t steps) {
    return ErrorOf([&](TrainConfig& c) {
      c.schedule = schedule;
      c.warmup_epochs = epochs;
      c.warmup_steps = steps;
    });
  };
  EXPECT_EQ(error("polynomial", 0, 500), "");
  EXPECT_EQ(error("one_cycle", 0, 0), "");
  EXPECT_EQ(error("cosine", 1, 500), "expected --warmup-epochs or --warmup-steps, not both");
  EXPECT_EQ(error("plateau", 1, 0),
            "--schedule=plateau: expected a schedule that can follow --warmup-epochs or --warmup-steps");
  EXPECT_EQ(error("square", 0, 0),
            "--schedule=square: expected step, cosine, linear, polynomial, warm_restarts, one_cycle or plateau");
}

TEST(Config, AnOptimizerIsOneOfTheNames) {
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.optimizer = "adamw"; }), "");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.optimizer = "muon"; }),
            "--optimizer=muon: expected adadelta, adafactor, adagrad, adam, adamax, adamw, asgd, lamb, lars, nadam, "
            "radam, rmsprop or sgd");
}

TEST(Config, VirtualRanksDivideTheBatch) {
  const auto error = [](int64_t batch_size, int32_t virtual_ranks) {
    return ErrorOf([=](TrainConfig& c) {
      c.batch_size = batch_size;
      c.virtual_ranks = virtual_ranks;
    });
  };
  EXPECT_EQ(error(24, 8), "");
  EXPECT_EQ(error(23, 0), "");
  EXPECT_EQ(error(23, 8), "--batch-size=23: expected a multiple of --virtual-ranks=8");
  EXPECT_EQ(error(24, -1), "--virtual-ranks=-1: expected 0 or more");
}

TEST(Config, AFrozenBackboneComesFromAFile) {
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.freeze_backbone = true; }),
            "--freeze-backbone: expected --pretrained or --resume, which give it a backbone");
}

TEST(Config, APathThatIsNotThereIsNamed) {
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.resume = "/no/such"; }),
            "--resume=/no/such: expected a file that can be read");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.pretrained = "/no/such"; }),
            "--pretrained=/no/such: expected a file that can be read");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.dummy = false; }), "expected the folder of the images, or --dummy");
}

TEST(Config, TheFolderOfImagesHasTrainAndVal) {
  const std::string folder = NewFolder();
  const auto error = [&] {
    return ErrorOf([&](TrainConfig& config) {
      config.dummy = false;
      config.data = folder;
    });
  };
  EXPECT_EQ(error(), "--data=" + folder + ": expected a folder with train/");
  mkdir((folder + "train").c_str(), 0700);
  EXPECT_EQ(error(), "--data=" + folder + ": expected a folder with val/");
  mkdir((folder + "val").c_str(), 0700);
  EXPECT_EQ(error(), "");
}

TEST(Config, OneLayoutIsChosen) {
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.mkldnn = true; }), "");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) { c.mkldnn = c.channels_last = true; }),
            "expected --mkldnn or --channels-last, not both");
  EXPECT_EQ(ErrorOf([](TrainConfig& c) {
              c.mkldnn = true;
              c.amp = "bf16";
            }),
            "--mkldnn computes in float32: expected no --amp");
}

std::string OutputErrorOf(const std::function<void(TrainConfig&)>& change) {
  TrainConfig config;
  config.checkpoint_dir = NewFolder();
  change(config);
  return std::string(CheckOutputs(config).message());
}

TEST(Config, AnOutputThatCannotBeWrittenIsNamedWithItsReason) {
  EXPECT_EQ(OutputErrorOf([](TrainConfig&) {}), "");
  EXPECT_EQ(OutputErrorOf([](TrainConfig& c) { c.checkpoint_dir = "/no/such"; }),
            "--checkpoint-dir=/no/such: no file can be created there: No such file or directory");
  EXPECT_EQ(OutputErrorOf([](TrainConfig& c) { c.json_file = c.checkpoint_dir; }).substr(0, 12), "--json-file=");
  EXPECT_EQ(OutputErrorOf([](TrainConfig& c) { c.trace_file = "/no/such/trace"; }),
            "--trace-file=/no/such/trace: no file can be created there: No such file or directory");
  EXPECT_EQ(OutputErrorOf([](TrainConfig& c) { c.tensorboard_dir = c.checkpoint_dir + "made/later"; }), "");
  EXPECT_EQ(OutputErrorOf([](TrainConfig& c) { c.tensorboard_dir = "/dev/null/below"; }),
            "--tensorboard-dir=/dev/null/below: no file can be created there: Not a directory");
}

// access() says that root can write there.
TEST(Config, AFolderIsTriedByCreatingAFileInIt) {
  EXPECT_NE(OutputErrorOf([](TrainConfig& c) { c.checkpoint_dir = "/proc"; }), "");
}

TEST(Config, WhatOnlyValidatesNeedsNoFolderForCheckpoints) {
  EXPECT_EQ(OutputErrorOf([](TrainConfig& c) {
              c.checkpoint_dir = "/no/such";
              c.evaluate = true;
            }),
            "");
}

}  // namespace
}  // namespace lockstep::examples::imagenet
