#include "lockstep/base/regular_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>

#include "gtest/gtest.h"

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
  close(open(Path("file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_EQ(symlink("file", Path("link").c_str()), 0);
  for (const char* name : {"file", "link"}) {
    const absl::StatusOr<int> file = OpenRegularFile(Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(fcntl(*file, F_GETFD), FD_CLOEXEC);
    close(*file);
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
  sockaddr_un address = {AF_UNIX, "socket"};
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(OpenError("socket"), absl::InvalidArgumentError("expected a regular file, found a socket"));
  close(fd);
}

}  // namespace
}  // namespace lockstep
