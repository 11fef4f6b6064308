#include "lockstep/checkpoint/file/atomic_file.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint::file {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/atomic_XXXXXX";
    ASSERT_NE(mkdtemp(&pattern[0]), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/model.pt";
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    DIR* entries = opendir(directory_.c_str());
    while (const dirent* entry = readdir(entries)) {
      if (std::string(entry->d_name) != "." && std::string(entry->d_name) != "..") names.push_back(entry->d_name);
    }
    closedir(entries);
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string Contents() const {
    std::ostringstream contents;
    contents << std::ifstream(path_).rdbuf();
    return contents.str();
  }

  absl::Status Replace(const std::string& contents) const {
    const auto file = AtomicFile::Create(path_, true);
    if (!file.ok()) return file.status();
    const absl::Status appended = (*file)->Append(contents.data(), contents.size());
    return appended.ok() ? (*file)->Commit() : appended;
  }

  std::string directory_;
  std::string path_;
};

TEST_F(AtomicFileTest, TheNewFileAppearsAtCommit) {
  ASSERT_TRUE(Replace("old").ok());
  const auto file = AtomicFile::Create(path_, true);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("new", 3).ok());
  EXPECT_EQ(Contents(), "old");
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(Contents(), "new");
  EXPECT_THAT(Names(), ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, WithoutCommitTheOldFileStaysAndTheTemporaryGoes) {
  ASSERT_TRUE(Replace("old").ok());
  { ASSERT_TRUE((*AtomicFile::Create(path_, true))->Append("new", 3).ok()); }
  EXPECT_EQ(Contents(), "old");
  EXPECT_THAT(Names(), ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, AShortWriteLeavesTheOldFile) {
  ASSERT_TRUE(Replace("old").ok());
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = before;
  limit.rlim_cur = 3 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = Replace(std::string(5 << 20, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("File too large"));
  EXPECT_EQ(Contents(), "old");
  EXPECT_THAT(Names(), ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, ADirectoryAtThePathIsRefused) {
  ASSERT_EQ(mkdir(path_.c_str(), 0755), 0);
  EXPECT_EQ(Replace("new"), absl::FailedPreconditionError("is a directory"));
  EXPECT_THAT(Names(), ElementsAre("model.pt"));
}

// Renaming a file over it would replace a device such as /dev/null.
TEST_F(AtomicFileTest, ADeviceOrAFifoIsRefusedAndStays) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0666), 0);
  EXPECT_EQ(Replace("new"), absl::InvalidArgumentError("expected a regular file, found a FIFO"));
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));

  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(symlink("/dev/null", path_.c_str()), 0);
  EXPECT_EQ(Replace("new"), absl::InvalidArgumentError("expected a regular file, found a character device"));
}

TEST_F(AtomicFileTest, ANameThatIsTooLongIsToldBeforeAnythingIsWritten) {
  path_ = directory_ + "/" + std::string(255, 'n');
  EXPECT_TRUE(Replace("new").ok());
  EXPECT_EQ(AtomicFile::Create(path_ + "n", true).status().message(), "its name: File name too long");
  EXPECT_THAT(Names(), ElementsAre(std::string(255, 'n')));
}

TEST_F(AtomicFileTest, AMissingOrUnwritableDirectoryIsAnError) {
  EXPECT_EQ(AtomicFile::Create(directory_ + "/none/model.pt", true).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(AtomicFile::Create(directory_ + "/", true).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Replace("old").ok());
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  // Root may write anywhere.
  if (access(directory_.c_str(), W_OK) != 0) {
    EXPECT_EQ(Replace("new").code(), absl::StatusCode::kPermissionDenied);
  }
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  EXPECT_EQ(AtomicFile::Create("/proc/model.pt", true).status().code(), absl::StatusCode::kNotFound)
      << "a directory that takes no files";
}

TEST_F(AtomicFileTest, ADirectoryRemovedMeanwhileIsAnError) {
  const auto file = AtomicFile::Create(path_, true);
  ASSERT_TRUE(file.ok());
  for (const std::string& name : Names()) unlink((directory_ + "/" + name).c_str());
  ASSERT_EQ(rmdir(directory_.c_str()), 0);
  ASSERT_TRUE((*file)->Append("new", 3).ok());
  const absl::Status status = (*file)->Commit();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rename the temporary file"));
}

TEST_F(AtomicFileTest, TheNextSaveRemovesWhatAKilledOneLeft) {
  const pid_t child = fork();
  if (child == 0) {
    const auto file = AtomicFile::Create(path_, true);
    (*file)->Append("half", 4).IgnoreError();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(Names().size(), 1) << "the temporary of the killed process";
  ASSERT_TRUE(Replace("new").ok());
  EXPECT_THAT(Names(), ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, ALivingSaveKeepsItsTemporary) {
  const auto first = AtomicFile::Create(path_, true);
  ASSERT_TRUE((*first)->Append("first", 5).ok());
  ASSERT_TRUE(Replace("second").ok());
  EXPECT_EQ(Names().size(), 2);
  ASSERT_TRUE((*first)->Commit().ok());
  EXPECT_EQ(Contents(), "first");
  EXPECT_THAT(Names(), ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, LeavesOtherHiddenFilesAlone) {
  std::ofstream(directory_ + "/.model.pt.lockstep-notes") << "mine";
  std::ofstream(directory_ + "/.other.pt.lockstep-0123456789abcdef") << "other";
  ASSERT_TRUE(Replace("new").ok());
  EXPECT_EQ(Names().size(), 3);
}

}  // namespace
}  // namespace lockstep::checkpoint::file
