#include "lockstep/launch/node/job_program.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/flag_check.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string File(const std::string& folder, const std::string& name, const std::string& text) {
  const std::string path = folder + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), 0700);
  return path;
}

std::string Difference(const std::vector<std::string>& theirs, const std::vector<std::string>& job) {
  return ProgramDifference("b", ReadJobProgram(theirs), ReadJobProgram(job));
}

TEST(JobProgram, TheFoldersOfTheProgramAndItsScriptDoNotCount) {
  const std::string a = testing::NewFolder(), b = testing::NewFolder();
  for (const std::string& folder : {a, b}) {
    File(folder, "train", "#!/bin/sh");
    File(folder, "train.py", "pass");
  }
  EXPECT_EQ(Difference({a + "train", "--lr=1"}, {b + "train", "--lr=1"}), "");
  EXPECT_EQ(Difference({"python3", "-u", a + "train.py"}, {"/usr/bin/python3", "-u", b + "train.py"}), "");
  EXPECT_EQ(Difference({"no such program"}, {"no such program"}), "");
}

TEST(JobProgram, NamesOtherArgumentsProgramsAndFiles) {
  const std::string a = testing::NewFolder(), b = testing::NewFolder();
  File(a, "train", "1");
  File(b, "train", "2");
  File(b, "test", "1");
  const std::string end = ": is it another job? give it another --rdzv-id; --rdzv-conf=same_program=false allows it";
  EXPECT_EQ(Difference({b + "train", "--lr=2"}, {b + "train", "--lr=1"}),
            absl::StrCat("host b runs ", b, "train --lr=2, the job runs ", b, "train --lr=1", end));
  EXPECT_EQ(Difference({"true", "1", ""}, {"true", "1"}),
            absl::StrCat("host b runs true 1 , the job runs true 1", end));
  EXPECT_THAT(Difference({b + "test"}, {b + "train"}),
              HasSubstr(absl::StrCat("host b runs ", b, "test, the job runs ")));
  // printf 2 | sha256sum
  EXPECT_EQ(Difference({b + "train"}, {a + "train"}), absl::StrCat("host b has another file ", b,
                                                                   "train than the job (SHA-256 d4735e3a265e..., not "
                                                                   "6b86b273ff34...)",
                                                                   end));
  EXPECT_THAT(Difference({"python3", "-u", b + "train"}, {"python3", "-u", a + "train"}),
              HasSubstr(absl::StrCat("host b has another file ", b, "train than the job (SHA-256 d4735e3a265e...")));
}

TEST(JobProgram, ShowsOfLongCommandsWhereTheyDiffer) {
  std::vector<std::string> job = {"true"};
  for (int i = 0; i < 400; ++i) job.push_back(absl::StrCat("--flag", i, "=", i));
  std::vector<std::string> theirs = job;
  theirs[200] = "--flag199=x";
  const std::string difference = Difference(theirs, job);
  EXPECT_THAT(difference, HasSubstr("=197 --flag198=198 --flag199=x --flag200=200 "));
  EXPECT_THAT(difference, HasSubstr("=197 --flag198=198 --flag199=199 --flag200=200 "));
  EXPECT_LT(difference.size(), 650);
  theirs = job;
  theirs[400] = "--flag399=x";
  EXPECT_THAT(ReadJobProgram(job).words.back(), HasSubstr(" more words with the hash "));
  EXPECT_THAT(Difference(theirs, job), HasSubstr(" more words with the hash "));
}

}  // namespace
}  // namespace lockstep::launch
