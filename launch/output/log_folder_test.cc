#include "lockstep/launch/output/log_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::MatchesRegex;
using testing::NewFolder;
using testing::ReadFile;

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

TEST(NewRunName, IsTheRunAndEightCharacters) {
  EXPECT_THAT(NewRunName("none"), MatchesRegex("none_[a-z0-9]{8}"));
  EXPECT_THAT(NewRunName("../a b\n"), MatchesRegex("\\.\\._a_b__[a-z0-9]{8}"));
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(NewRunName("none"));
  EXPECT_EQ(names.size(), 100);
}

TEST(CreateLogFolder, CreatesTheFoldersAbove) {
  const std::string base = NewFolder() + "a/b";
  const absl::StatusOr<std::string> folder = CreateLogFolder(base, "job7");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(*folder, MatchesRegex(absl::StrCat(base, "/job7_[a-z0-9]{8}")));
  EXPECT_TRUE(IsFolder(*folder));
  EXPECT_NE(*CreateLogFolder(base, "job7"), *folder);
}

TEST(CreateLogFolder, TakesTheTemporaryFolderByDefault) {
  const std::string base = NewFolder() + "tmp";
  mkdir(base.c_str(), 0700);
  setenv("TMPDIR", base.c_str(), 1);
  const absl::StatusOr<std::string> folder = CreateLogFolder("", "none");
  unsetenv("TMPDIR");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(*folder, MatchesRegex(absl::StrCat(base, "/launch_[a-z0-9]{8}/none_[a-z0-9]{8}")));
}

TEST(CreateLogFolder, NamesThePathThatItCannotCreate) {
  const std::string file = NewFolder() + "file";
  UniqueFd(open(file.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_EQ(
      CreateLogFolder(file, "none").status(),
      absl::FailedPreconditionError(absl::StrCat("launch: log folder ", file, " cannot be created: Not a directory")));
  EXPECT_EQ(
      CreateLogFolder(file + "/logs", "none").status(),
      absl::FailedPreconditionError(absl::StrCat("launch: log folder ", file, " cannot be created: Not a directory")));
  EXPECT_THAT(std::string(CreateLogFolder("/proc/self", "none").status().message()),
              MatchesRegex("launch: log folder /proc/self/none_[a-z0-9]{8} cannot be created: .+"));
}

TEST(CreateLogFile, HasTorchrunsLayout) {
  const std::string folder = NewFolder() + "run";
  const absl::StatusOr<LogFile> log = CreateLogFile(folder, 2, 3, "stderr");
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->path, folder + "/attempt_2/3/stderr.log");
  ASSERT_EQ(write(log->fd.get(), "text", 4), 4);
  EXPECT_EQ(ReadFile(log->path), "text");
}

TEST(CreateLogFile, NamesTheFileThatItCannotCreate) {
  const std::string folder = NewFolder() + "run";
  ASSERT_TRUE(CreateLogFile(folder, 0, 0, "stdout").ok());
  const std::string path = folder + "/attempt_0/0/stderr.log";
  mkdir(path.c_str(), 0700);
  EXPECT_EQ(
      CreateLogFile(folder, 0, 0, "stderr").status(),
      absl::FailedPreconditionError(absl::StrCat("launch: log file ", path, " cannot be created: Is a directory")));
}

}  // namespace
}  // namespace lockstep::launch
