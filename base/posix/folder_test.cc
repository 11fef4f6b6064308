#include "lockstep/base/posix/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {
namespace {

class Folders : public ::testing::Test {
 protected:
  Folders() : top_(::testing::TempDir() + "/foldersXXXXXX") { EXPECT_TRUE(mkdtemp(top_.data())); }

  static bool IsFolder(const std::string& path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }

  std::string top_;
};

TEST_F(Folders, AreMadeWithAllAboveThem) {
  for (const bool lasting : {false, true}) {
    const std::string path = top_ + (lasting ? "/lasting" : "/plain") + "//b/c/";
    EXPECT_FALSE(MakeFolders(path, lasting));
    EXPECT_TRUE(IsFolder(path));
    EXPECT_FALSE(MakeFolders(path, lasting)) << "it exists";
  }
  EXPECT_FALSE(MakeFolders("/", true));
}

TEST_F(Folders, AreMadeInTheFolderOfTheProcess) {
  ASSERT_EQ(chdir(top_.c_str()), 0);
  EXPECT_FALSE(MakeFolders("a/b", true));
  EXPECT_TRUE(IsFolder(top_ + "/a/b"));
}

TEST_F(Folders, NameTheOneThatCannotBeMade) {
  const std::string file = top_ + "/file";
  ASSERT_TRUE(UniqueFd(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).valid());
  for (const std::string& path : {file, file + "/a", file + "/a/b"}) {
    const auto failed = MakeFolders(path);
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->folder, file);
    EXPECT_EQ(failed->error, ENOTDIR);
  }
  const auto failed = MakeFolders("/proc/none/a");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->folder, "/proc/none");
  EXPECT_NE(failed->error, 0);
  EXPECT_TRUE(MakeFolders(""));
}

TEST_F(Folders, HaveNamesInOrder) {
  EXPECT_EQ(NamesIn(top_), std::vector<std::string>());
  for (const char* name : {"/b", "/...", "/a/c"}) EXPECT_FALSE(MakeFolders(top_ + name));
  EXPECT_EQ(NamesIn(top_), (std::vector<std::string>{"...", "a", "b"}));
  EXPECT_EQ(NamesIn(top_ + "/none"), std::vector<std::string>());
}

TEST_F(Folders, AreFlushedUnlessThereAreNone) {
  EXPECT_FALSE(FlushFolder(top_));
  const auto failed = FlushFolder(top_ + "/none");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->folder, top_ + "/none");
  EXPECT_EQ(failed->error, ENOENT);
}

}  // namespace
}  // namespace lockstep
