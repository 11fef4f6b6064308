#include "lockstep/base/posix/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "gtest/gtest.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {
namespace {

absl::Status OpenError(const std::string& path) { return OpenRegularFile(path).status(); }

class RegularFile : public ::testing::Test {
 protected:
  RegularFile() : folder_(::testing::TempDir() + "/regular_fileXXXXXX") { EXPECT_TRUE(mkdtemp(folder_.data())); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(RegularFile, IsOpenedAlsoThroughALink) {
  ASSERT_TRUE(UniqueFd(open(Path("file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).valid());
  ASSERT_EQ(symlink("file", Path("link").c_str()), 0);
  for (const char* name : {"file", "link"}) {
    const absl::StatusOr<UniqueFd> file = OpenRegularFile(Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(fcntl(file->get(), F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(OpenError(Path("none")), absl::NotFoundError("cannot be opened: No such file or directory"));
}

TEST_F(RegularFile, AnythingElseIsRefusedByWhatItIsWithoutWaiting) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("fifo", Path("link").c_str()), 0);
  EXPECT_EQ(OpenError(Path("fifo")), absl::InvalidArgumentError("expected a regular file, found a FIFO"));
  EXPECT_EQ(OpenError(Path("link")), absl::InvalidArgumentError("expected a regular file, found a FIFO"));
  EXPECT_EQ(OpenError(folder_), absl::InvalidArgumentError("expected a regular file, found a folder"));
  EXPECT_EQ(OpenError("/dev/null"), absl::InvalidArgumentError("expected a regular file, found a character device"));
}

TEST_F(RegularFile, ASocketIsRefusedAsOne) {
  ASSERT_EQ(chdir(folder_.c_str()), 0);  // a socket's path is short
  const UniqueFd fd = Bind(PathAddress("socket"));
  ASSERT_TRUE(fd.valid());
  EXPECT_EQ(OpenError("socket"), absl::InvalidArgumentError("expected a regular file, found a socket"));
}

}  // namespace
}  // namespace lockstep
