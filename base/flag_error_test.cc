#include "lockstep/base/flag_error.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(FlagError, EscapesControlCharacters) {
  EXPECT_EQ(FlagError("format", "\x1b[31m", "a or b").message(), "--format=\\x1b[31m: expected a or b");
}

TEST(CheckRanges, NamesTheFirstValueThatIsNotInItsRange) {
  EXPECT_TRUE(CheckRanges({{"lr", 0, 0}, {"epochs", 1e9, 1}}).ok());
  EXPECT_EQ(CheckRanges({{"lr", 0.1, 0}, {"epochs", 0, 1}}).message(), "--epochs=0: expected 1 or more");
  EXPECT_EQ(CheckRanges({{"lr", NAN, 0}}).message(), "--lr=nan: expected 0 or more");
  EXPECT_EQ(CheckRanges({{"lr", -INFINITY, 0}}).message(), "--lr=-inf: expected 0 or more");
  EXPECT_EQ(CheckRanges({{"lr", INFINITY, 0}}).message(), "--lr=inf: expected at most 1000000000");
  EXPECT_EQ(CheckRanges({{"workers", 5000, 1, 4096}}).message(), "--workers=5000: expected at most 4096");
}

TEST(CheckMultiple, NamesTheNumber) {
  EXPECT_TRUE(CheckMultiple("batch_size", 6, 3).ok());
  EXPECT_EQ(CheckMultiple("batch_size", 5, 2).message(), "--batch_size=5: expected a multiple of 2");
}

TEST(CheckSeconds, TakesPositiveFiniteOnes) {
  EXPECT_TRUE(CheckSeconds("timeout", 0.5).ok());
  for (const double value : std::vector<double>{0, -1, INFINITY, 1e300, NAN}) {
    EXPECT_FALSE(CheckSeconds("timeout", value).ok()) << value;
  }
}

TEST(CheckChoice, NamesTheChoices) {
  EXPECT_TRUE(CheckChoice("backend", "gloo", {"shm", "gloo", "local"}).ok());
  EXPECT_EQ(CheckChoice("backend", "mpi", {"shm", "gloo", "local"}).message(),
            "--backend=mpi: expected shm, gloo or local");
}

TEST(FlagItems, RefusesAnUnknownAndAnEmptyItem) {
  EXPECT_EQ(*FlagItems("case", "save,load", {"save", "load"}), (std::vector<std::string>{"save", "load"}));
  for (const std::string value : {"", ",", "save,", "save,,load", "save, load", "sav"}) {
    EXPECT_EQ(FlagItems("case", value, {"save", "load"}).status().message(),
              "--case=" + value + ": expected save or load, or several of them with a comma between two");
  }
}

TEST(FlagNumbers, RefusesANumberOutOfItsRangeAndAnEmptyItem) {
  EXPECT_EQ(*FlagNumbers("replicas", "1,64", 1, 64), (std::vector<int64_t>{1, 64}));
  for (const std::string value : {"", "2,,4", "0", "-1", "65", "2,nan", "1e1", "99999999999999999999"}) {
    EXPECT_EQ(FlagNumbers("replicas", value, 1, 64).status().message(),
              "--replicas=" + value + ": expected whole numbers from 1 to 64 with a comma between two");
  }
}

}  // namespace
}  // namespace lockstep
