#include "lockstep/examples/program/flag_table.h"

#include <gflags/gflags.h>

#include <cmath>

#include "gtest/gtest.h"

namespace lockstep::examples {
namespace {

struct Config {
  int64_t epochs = 5;
  int32_t ranks = 2;
  double rate = 0.5;
  bool dry = false;
  std::string name = "none";
  std::string color;
  std::optional<int64_t> seed;
};

FlagTable FlagsOf(Config& config) {
  FlagTable flags;
  flags.Group("Numbers");
  flags.Add("epochs", &config.epochs, "Passes.", {1, 100});
  flags.Add("num-ranks", &config.ranks, "Ranks.", {1});
  flags.Add("rate", &config.rate, "Rate.", {0});
  flags.Add("seed", &config.seed, "Seed.");
  flags.Group("Words");
  flags.Add("dry", &config.dry, "Dry.");
  flags.Add("name", &config.name, "Name.");
  flags.AddChoice("color", &config.color, {"", "red", "green"}, "Color.");
  return flags;
}

std::string ErrorOf(Config config) { return std::string(FlagsOf(config).Check().message()); }

TEST(FlagTable, AValueOutsideItsRangeIsNamedAsItsRowSpellsIt) {
  EXPECT_EQ(ErrorOf({}), "");
  Config config;
  config.epochs = 0;
  EXPECT_EQ(ErrorOf(config), "--epochs=0: expected 1 or more");
  config.epochs = 101;
  EXPECT_EQ(ErrorOf(config), "--epochs=101: expected at most 100");
  config.epochs = 1;
  config.ranks = -1;
  EXPECT_EQ(ErrorOf(config), "--num-ranks=-1: expected 1 or more");
  config.ranks = 1;
  config.rate = NAN;
  EXPECT_EQ(ErrorOf(config), "--rate=nan: expected 0 or more");
}

TEST(FlagTable, ParsedFlagsSetTheVariables) {
  static Config config;
  config.rate = 0.25;
  static FlagTable flags = FlagsOf(config);
  ProgramUsage usage;
  flags.Register(usage);
  ASSERT_EQ(usage.groups.size(), 2);
  EXPECT_EQ(usage.groups[0].title, "Numbers");
  EXPECT_EQ(usage.groups[0].flags, (std::vector<std::string>{"epochs", "num_ranks", "rate", "seed"}));
  EXPECT_EQ(gflags::GetCommandLineFlagInfoOrDie("rate").default_value, "0.25");
  EXPECT_EQ(gflags::GetCommandLineFlagInfoOrDie("rate").filename, usage.source);
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"epochs", "7"}, {"num_ranks", "4"}, {"dry", "true"}, {"name", "x"}, {"color", "green"}, {"seed", "-3"}}) {
    EXPECT_NE(gflags::SetCommandLineOption(name, value), "") << name;
  }
  EXPECT_EQ(flags.Check(), absl::OkStatus());
  EXPECT_EQ(config.epochs, 7);
  EXPECT_EQ(config.ranks, 4);
  EXPECT_TRUE(config.dry);
  EXPECT_EQ(config.name, "x");
  EXPECT_EQ(config.color, "green");
  EXPECT_EQ(config.seed, -3);
  gflags::SetCommandLineOption("color", "blue");
  EXPECT_EQ(flags.Check().message(), "--color=blue: expected red or green");
  gflags::SetCommandLineOption("color", "");
  gflags::SetCommandLineOption("seed", "x");
  EXPECT_EQ(flags.Check().message(), "--seed=x: expected a whole number");
}

}  // namespace
}  // namespace lockstep::examples
