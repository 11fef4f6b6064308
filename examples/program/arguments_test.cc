#include "lockstep/examples/program/arguments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::examples {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Rewrite(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return WithGflagsNames(arguments, {{"-b", "batch_size"}, {"-e", "evaluate"}, {"--wd", "weight_decay"}});
}

TEST(Arguments, DashesInNamesBecomeUnderscoresAndValuesStay) {
  EXPECT_THAT(Rewrite({"--batch-size", "256", "--dist-url=tcp://a-b:1", "--print_freq=1"}),
              ElementsAre("train", "--batch_size", "256", "--dist_url=tcp://a-b:1", "--print_freq=1"));
}

TEST(Arguments, AnAliasIsTheFlagItStandsForHoweverItsValueFollows) {
  EXPECT_THAT(Rewrite({"-b", "256", "-b=8", "-b64", "--wd=1e-4", "-e"}),
              ElementsAre("train", "--batch_size", "256", "--batch_size=8", "--batch_size=64", "--weight_decay=1e-4",
                          "--evaluate"));
}

TEST(Arguments, WhatIsNoFlagStays) {
  EXPECT_THAT(Rewrite({"some-folder", "--rank", "-1", "-x", "--", "--batch-size"}),
              ElementsAre("train", "some-folder", "--rank", "-1", "-x", "--", "--batch-size"));
  EXPECT_THAT(WithGflagsNames({"-b"}, {{"-b", "batch_size"}}), ElementsAre("-b"));
}

}  // namespace
}  // namespace lockstep::examples
