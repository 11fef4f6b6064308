// Saves that fail on one rank, and requests that cannot be met: every rank gets the same error, and the previous
// checkpoint stays.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/failures/faulty_file_system.h"
#include "lockstep/checkpoint/sharded/internal/saver.h"
#include "lockstep/checkpoint/sharded/load_whole.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

using checkpoint::testing::FaultyFileSystem;
using comm::ProcessGroup;
using comm::testing::RunRanks;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr SaveOptions kNoSync = {.sync = false};

std::string NewDirectory(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/failures_", name);
  std::filesystem::remove_all(path);
  return path;
}

std::set<std::string> NamesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// Row `rank` of a tensor that is `number` everywhere.
ShardedStateDict StateOf(double number, int rank, int ranks) {
  return {{"x", ShardedTensor{{ranks, 4}, {{{rank, 0}, at::full({1, 4}, number)}}}}, {"number", Value(number)}};
}

std::vector<absl::Status> Save(const std::string& directory, double number, int ranks) {
  return RunRanks(ranks, [&](ProcessGroup& group) {
    return SaveSharded(directory, StateOf(number, group.rank(), ranks), &group, kNoSync);
  });
}

// The number whose checkpoint is in `directory`, intact.
double NumberIn(const std::string& directory, int ranks) {
  const auto whole = LoadWhole(directory);
  EXPECT_TRUE(whole.ok()) << whole.status();
  if (!whole.ok()) return -1;
  const double number = whole->Find("number")->double_value();
  EXPECT_TRUE(whole->Find("x")->tensor().equal(at::full({ranks, 4}, number)));
  return number;
}

TEST(SaveSharded, ReplacesACheckpointAndLeavesNothingOfIt) {
  const std::string directory = NewDirectory("replace");
  EXPECT_THAT(Save(directory, 1, 3), Each(absl::OkStatus()));
  EXPECT_THAT(Save(directory, 2, 2), Each(absl::OkStatus()));
  EXPECT_EQ(NumberIn(directory, 2), 2);
  EXPECT_THAT(NamesIn(directory), UnorderedElementsAre(".metadata", "__0_1.distcp", "__1_1.distcp"));
  for (const char* left : {"/__5_0.distcp", "/.__7_2.distcp.lockstep-0123456789abcdef"})
    std::ofstream(directory + left) << "of a save that was killed";
  std::ofstream(directory + "/notes.txt") << "the user's";
  EXPECT_THAT(Save(directory, 3, 2), Each(absl::OkStatus()));
  EXPECT_EQ(NumberIn(directory, 2), 3);
  EXPECT_THAT(NamesIn(directory), UnorderedElementsAre(".metadata", "__0_0.distcp", "__1_0.distcp", "notes.txt"));
}

TEST(SaveSharded, ReplacesAMetadataThatCannotBeRead) {
  const std::string directory = NewDirectory("unreadable");
  EXPECT_THAT(Save(directory, 1, 1), Each(absl::OkStatus()));
  std::ofstream(directory + "/.metadata") << "damaged";
  EXPECT_THAT(Save(directory, 2, 1), Each(absl::OkStatus()));
  EXPECT_EQ(NumberIn(directory, 1), 2);
}

// The outcome of a save of 2 over 1 by two ranks. The call number `call` of rank `faulty` fails.
struct Outcome {
  std::vector<absl::Status> results;
  std::string failed;  // the call; empty if there were fewer
};

Outcome SaveWithFault(const std::string& directory, int faulty, size_t call) {
  Outcome outcome;
  outcome.results = RunRanks(2, [&](ProcessGroup& group) {
    FaultyFileSystem system([&](size_t number, const std::string& name) {
      if (group.rank() != faulty || number != call) return 0;
      outcome.failed = name;
      return ENOSPC;
    });
    return internal::SaveShardedOver(system, directory, StateOf(2, group.rank(), 2), &group, {.sync = true});
  });
  return outcome;
}

TEST(SaveSharded, AnErrorOfAnyCallOnOneRankIsEveryRanksAndLeavesTheOldCheckpoint) {
  int errors = 0;
  for (size_t call = 0;; ++call) {
    const std::string directory = NewDirectory(absl::StrCat("fault_", call));
    ASSERT_THAT(Save(directory, 1, 2), Each(absl::OkStatus()));
    const Outcome outcome = SaveWithFault(directory, 1, call);
    if (outcome.failed.empty()) break;
    SCOPED_TRACE(absl::StrCat("call ", call, ", ", outcome.failed));
    EXPECT_EQ(outcome.results[0], outcome.results[1]);
    const bool ok = outcome.results[0].ok();
    EXPECT_EQ(NumberIn(directory, 2), ok ? 2 : 1);
    if (ok) continue;
    ++errors;
    EXPECT_EQ(outcome.results[0].code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(outcome.results[0].message()), HasSubstr(directory + ": rank 1 ("));
    EXPECT_THAT(std::string(outcome.results[0].message()), HasSubstr("__1_1.distcp: "));
    EXPECT_THAT(NamesIn(directory), UnorderedElementsAre(".metadata", "__0_0.distcp", "__1_0.distcp"));
  }
  EXPECT_GE(errors, 5) << "open the directory, make the file, write, flush, rename";
}

TEST(SaveSharded, AnErrorOfAnyCallForTheMetadataLeavesTheOldCheckpointOrTheNew) {
  int errors = 0;
  for (size_t call = 0;; ++call) {
    const std::string directory = NewDirectory(absl::StrCat("metadata_fault_", call));
    ASSERT_THAT(Save(directory, 1, 2), Each(absl::OkStatus()));
    const Outcome outcome = SaveWithFault(directory, 0, call);
    if (outcome.failed.empty()) break;
    SCOPED_TRACE(absl::StrCat("call ", call, ", ", outcome.failed));
    EXPECT_EQ(outcome.results[0], outcome.results[1]);
    const bool in_place = absl::StrContains(outcome.results[0].message(), ".metadata: the new file is in place");
    EXPECT_EQ(NumberIn(directory, 2), outcome.results[0].ok() || in_place ? 2 : 1);
    errors += outcome.results[0].ok() ? 0 : 1;
  }
  EXPECT_GE(errors, 10);
}

TEST(SaveSharded, RanksThatGiveDifferentDirectoriesAreTold) {
  const std::string directory = NewDirectory("ours"), other = NewDirectory("theirs");
  std::filesystem::create_directory(other);
  ASSERT_THAT(Save(directory, 1, 2), Each(absl::OkStatus()));
  const auto results = RunRanks(2, [&](ProcessGroup& group) {
    return SaveSharded(group.rank() == 0 ? directory : other, StateOf(2, group.rank(), 2), &group, kNoSync);
  });
  for (const absl::Status& result : results) EXPECT_EQ(result.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(results[0].message()),
              HasSubstr(".metadata: __1_1.distcp was written, but is not in rank 0's directory"));
  EXPECT_EQ(NumberIn(directory, 2), 1) << "the old checkpoint is as it was";
}

// Saves with one rank over a checkpoint of two ranks, and is killed before call number `call`. Returns whether it
// finished before.
bool SaveAndKill(const std::string& directory, size_t call) {
  const pid_t child = fork();
  if (child == 0) {
    FaultyFileSystem system([call](size_t number, const std::string&) {
      if (number == call) kill(getpid(), SIGKILL);
      return 0;
    });
    const ShardedStateDict state = {{"x", Value(at::full({2, 4}, 2.0))}, {"number", 2.0}};
    _exit(internal::SaveShardedOver(system, directory, state, nullptr, {.sync = true}).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SaveSharded, KilledBeforeAnyCallItLeavesTheOldCheckpointOrTheNewAndTheNextSaveTidiesUp) {
  int old = 0, replaced = 0;
  for (size_t call = 0;; ++call) {
    SCOPED_TRACE(call);
    const std::string directory = NewDirectory("killed");
    ASSERT_THAT(Save(directory, 1, 2), Each(absl::OkStatus()));
    if (SaveAndKill(directory, call)) break;
    const double left = NumberIn(directory, 2);
    EXPECT_TRUE(left == 1 || left == 2) << left;
    ++(left == 1 ? old : replaced);
    ASSERT_THAT(Save(directory, 3, 2), Each(absl::OkStatus()));
    EXPECT_EQ(NumberIn(directory, 2), 3);
    EXPECT_EQ(NamesIn(directory).size(), 3) << ".metadata and a file of each rank";
  }
  EXPECT_GT(old, 10);
  EXPECT_GT(replaced, 1);
}

TEST(SaveSharded, ARankThatDiesLeavesTheOldCheckpoint) {
  const std::string directory = NewDirectory("dies");
  ASSERT_THAT(Save(directory, 1, 3), Each(absl::OkStatus()));
  const auto results = RunRanks(3, [&](ProcessGroup& group) {
    if (group.rank() == 1) return absl::AbortedError("killed");
    return SaveSharded(directory, StateOf(2, group.rank(), 3), &group, kNoSync);
  });
  EXPECT_THAT(std::string(results[0].message()), HasSubstr("killed"));
  EXPECT_THAT(std::string(results[2].message()), HasSubstr("killed"));
  EXPECT_EQ(NumberIn(directory, 3), 1);
}

// `message` with ranks' names reduced to their numbers.
std::string WithoutHosts(const std::string& message) {
  return std::regex_replace(message, std::regex(R"(rank (\d+) \([^)]*\))"), "rank $1");
}

// The error that two ranks get when they save these.
std::string WhyNot(const ShardedStateDict& first, const ShardedStateDict& second) {
  const std::string directory = NewDirectory("refused");
  const auto results = RunRanks(2, [&](ProcessGroup& group) {
    return SaveSharded(directory, group.rank() == 0 ? first : second, &group, kNoSync);
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_FALSE(std::filesystem::exists(directory + "/.metadata"));
  return WithoutHosts(std::string(absl::StripPrefix(results[0].message(), directory)));
}

ShardedTensor Part(std::vector<int64_t> sizes, std::vector<int64_t> offsets, const at::Tensor& tensor) {
  return {std::move(sizes), {{std::move(offsets), tensor}}};
}

TEST(SaveSharded, RefusesWhatDoesNotFitTogether) {
  const at::Tensor two = at::ones({2, 3});
  EXPECT_EQ(WhyNot({{"w", Part({4, 3}, {0, 0}, two)}}, {{"w", Part({4, 3}, {1, 0}, two)}}),
            ": item \"w\": rank 0's part [2, 3] at [0, 0] and rank 1's [2, 3] at [1, 0] overlap");
  EXPECT_EQ(WhyNot({{"w", Part({5, 3}, {0, 0}, two)}}, {{"w", Part({5, 3}, {2, 0}, two)}}),
            ": item \"w\": all ranks together have 12 of its 15 elements [5, 3]");
  EXPECT_EQ(WhyNot({{"w", ShardedTensor{{2}, {}}}}, {}),
            ": item \"w\": all ranks together have 0 of its 2 elements [2]");
  EXPECT_EQ(WhyNot({{"w", Value(two)}}, {{"w", Value(at::ones({3, 2}))}}),
            ": item \"w\": rank 1 has Float [3, 2], rank 0 has Float [2, 3]");
  EXPECT_EQ(WhyNot({{"w", Value(two)}}, {{"w", Value(two.to(at::kInt))}}),
            ": item \"w\": rank 1 has Int [2, 3], rank 0 has Float [2, 3]");
  EXPECT_EQ(WhyNot({{"w", 3}}, {{"w", Value(two)}}), ": item \"w\": rank 1 has Float [2, 3], rank 0 has a plain value");
}

TEST(SaveSharded, NamesTheRanksWhoseCopiesDiffer) {
  constexpr char kAdvice[] =
      "; what several ranks pass under one name must be equal: broadcast it, pass it on one rank, or use a name per "
      "rank";
  const at::Tensor two = at::ones({2, 3}), other = two.clone();
  other[1][2] = 1.0000001f;
  EXPECT_EQ(WhyNot({{"w", Value(two)}}, {{"w", Value(other)}}),
            absl::StrCat(": item \"w\": rank 1's contents differ from rank 0's", kAdvice));
  EXPECT_EQ(WhyNot({{"step", 3}, {"loss", 0.5}}, {{"step", 3}, {"loss", 0.25}}),
            absl::StrCat(": item \"loss\": rank 1's contents differ from rank 0's", kAdvice));
  EXPECT_EQ(WhyNot({{"w", Part({2, 3}, {0, 0}, two)}}, {{"w", Part({2, 3}, {0, 0}, other)}}),
            absl::StrCat(": item \"w\": rank 1's contents differ from rank 0's", kAdvice));
  EXPECT_EQ(WhyNot({{"a", 1}, {"b", 2}}, {{"b", "2"}, {"a", true}}),
            absl::StrCat(": item \"a\": rank 1's contents differ from rank 0's, and 1 more item's differ", kAdvice));
  for (const auto& [a, b] :
       std::vector<std::pair<Value, Value>>{{1, 1.0},
                                            {0.0, -0.0},
                                            {"ab", Value::Bytes("ab")},
                                            {Value::List({1}), Value::Tuple({1})},
                                            {Value::List({"a", "bc"}), Value::List({"ab", "c"})},
                                            {Value::List({Value::List()}), Value::List({Value::List(), Value::List()})},
                                            {Value::Dict({{"a", 1}, {"b", 2}}), Value::Dict({{"a", 2}, {"b", 1}})},
                                            {Value::List({at::ones({2})}), Value::List({at::ones({1, 2})})},
                                            {Value::List({at::zeros({2})}), Value::List({at::zeros({2}, at::kInt)})}}) {
    EXPECT_THAT(WhyNot({{"v", a}}, {{"v", b}}), HasSubstr("rank 1's contents differ from rank 0's"));
  }
}

TEST(SaveSharded, NamesEveryRankThatDiffersAndKeepsTheOldCheckpoint) {
  const std::string directory = NewDirectory("differ");
  ASSERT_THAT(Save(directory, 1, 4), Each(absl::OkStatus()));
  const std::set<std::string> before = NamesIn(directory);
  const auto results = RunRanks(4, [&](ProcessGroup& group) {
    ShardedStateDict state = StateOf(2, group.rank(), 4);
    if (group.rank() > 0) state.push_back({"seed", group.rank() % 2});
    return SaveSharded(directory, state, &group, kNoSync);
  });
  EXPECT_THAT(results, Each(results[0]));
  EXPECT_THAT(std::string(results[0].message()),
              HasSubstr("item \"seed\": rank 2's contents differ from ranks 1, 3's"));
  EXPECT_EQ(NumberIn(directory, 4), 1);
  EXPECT_EQ(NamesIn(directory), before);
}

TEST(SaveSharded, CopiesOfTheSameBitsAreEqualHowEverTheyAreStored) {
  const double nan = std::nan("");
  const at::Tensor x = at::arange(6.0).reshape({2, 3});
  const Value shared = Value::List({nan, x});
  const std::string directory = NewDirectory("equal");
  const auto results = RunRanks(2, [&](ProcessGroup& group) {
    const bool first = group.rank() == 0;
    const Value own = Value::List({std::nan(""), x.clone()});
    return SaveSharded(directory,
                       {{"nan", nan},
                        {"tensor", Value(at::full({3}, nan))},
                        {"strides", Value(first ? x : x.t().contiguous().t())},
                        {"sharing", first ? Value::Tuple({shared, shared}) : Value::Tuple({own, shared})},
                        {"order", first ? Value::Dict({{"a", 1}, {"b", 2}}) : Value::Dict({{"b", 2}, {"a", 1}})}},
                       &group, kNoSync);
  });
  EXPECT_THAT(results, Each(absl::OkStatus()));
}

TEST(SaveSharded, RefusesOneRanksOwnMistakesByItsNumber) {
  const ShardedStateDict fine = {{"w", Part({2, 3}, {0, 0}, at::ones({2, 3}))}};
  EXPECT_EQ(WhyNot(fine, {{"w", Part({2, 3}, {1, 0}, at::ones({2, 3}))}}),
            ": rank 1: item \"w\": a part [2, 3] at [1, 0] is not inside [2, 3]");
  EXPECT_EQ(WhyNot(fine, {{"w", Value(1)}, {"w", Value(2)}}), ": rank 1: item \"w\" occurs twice");
  EXPECT_EQ(WhyNot(fine, {{"\xff", Value(1)}}), ": rank 1: item \"\xff\": a name that is not UTF-8");
  EXPECT_EQ(WhyNot(fine, {{"w", Value(at::Tensor())}}), ": rank 1: item \"w\": an undefined tensor");
  EXPECT_EQ(WhyNot(fine, {{{"w", 1.5}, Value(1)}}),
            ": rank 1: item \"[\"w\"][1.5]\": a path's steps are str and int, found float");
  EXPECT_EQ(WhyNot(fine, {{"v", Value::List({"\xff"})}}).substr(0, 20), ": rank 1: item \"v\": ");
}

// The error that three ranks get if rank 2 requests this of a checkpoint with x, [3, 4], and number.
std::string WhyNotLoaded(const ShardedEntry& wanted) {
  static const std::string& directory = *new std::string(NewDirectory("wishes"));
  static const auto saved = Save(directory, 1, 3);
  EXPECT_THAT(saved, Each(absl::OkStatus()));
  const auto results = RunRanks(3, [&](ProcessGroup& group) {
    const at::Tensor x = at::zeros({3, 4});
    ShardedStateDict state = {{"x", Value(x)}};
    if (group.rank() == 2) state.push_back(wanted);
    const absl::Status loaded = LoadSharded(directory, state, &group);
    EXPECT_TRUE(x.equal(at::zeros({3, 4}))) << "touched on rank " << group.rank();
    return loaded;
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  return WithoutHosts(absl::StrReplaceAll(results[0].message(), {{directory + ": ", ""}}));
}

TEST(LoadSharded, AWishThatCannotBeMetOnOneRankLeavesAllTensorsAlone) {
  EXPECT_EQ(WhyNotLoaded({"y", Value()}), "rank 2: item \"y\": the checkpoint has none of this name");
  EXPECT_EQ(WhyNotLoaded({"x", Value(at::zeros({4, 3}))}),
            "rank 2: item \"x\": the checkpoint has [3, 4], wanted is [4, 3]");
  EXPECT_EQ(WhyNotLoaded({"x", Part({3, 4}, {2, 0}, at::zeros({2, 4}))}),
            "rank 2: item \"x\": a part [2, 4] at [2, 0] is not inside [3, 4]");
  EXPECT_EQ(WhyNotLoaded({"x", 7}), "rank 2: item \"x\": the checkpoint has a tensor [3, 4] there, wanted is int");
  EXPECT_EQ(WhyNotLoaded({"number", Value(at::zeros({}))}),
            "rank 2: item \"number\": the checkpoint has a plain value there, not a tensor");
}

TEST(LoadSharded, NamesWhatIsMissing) {
  const std::string directory = NewDirectory("missing");
  ShardedStateDict state = {{"x", Value()}};
  EXPECT_EQ(LoadSharded(directory, state, nullptr).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Save(directory, 1, 2), Each(absl::OkStatus()));
  std::filesystem::remove(directory + "/__1_0.distcp");
  const absl::Status missing = LoadSharded(directory, state, nullptr);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(directory + "/__1_0.distcp: item \"x\": "));
  // A rank that needs nothing of the file does not report that it is missing.
  ShardedStateDict first = {{"x", Part({2, 4}, {0, 0}, at::zeros({1, 4}))}};
  EXPECT_EQ(LoadSharded(directory, first, nullptr), absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::checkpoint
