// Every system call of replacing a file, failing in every way it can.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/failures/faulty_file_system.h"
#include "lockstep/checkpoint/failures/saved_file.h"
#include "lockstep/checkpoint/file/atomic_file.h"

namespace lockstep::checkpoint {
namespace {

using file::AtomicFile;
using ::testing::ElementsAre;
using testing::FaultyFileSystem;
using ::testing::HasSubstr;
using testing::SavedFile;

constexpr int kNone = 0;

absl::Status Replace(const std::string& path, const std::string& contents, file::FileSystem& system) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<file::AtomicFile> file, file::AtomicFile::Create(path, true, system));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(contents.data(), contents.size()));
  return file->Commit();
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return std::distance(begin(entries), end(entries));
}

// The names of the calls that a replacement without errors makes.
std::vector<std::string> CallsFor(const std::string& contents) {
  const SavedFile file;
  file.Write("old");
  FaultyFileSystem system([](size_t, const std::string&) { return kNone; });
  EXPECT_TRUE(Replace(file.path(), contents, system).ok());
  EXPECT_EQ(file.Contents(), contents);
  return system.calls();
}

// A file that is written in one call, and one that a thread writes in blocks, with a rest shorter than a block.
class Faults : public ::testing::TestWithParam<size_t> {
 protected:
  std::string New() const {
    std::string contents(GetParam(), 'n');
    for (size_t i = 0; i < contents.size(); i += 997) contents[i] = static_cast<char>(i / 997);
    return contents;
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Faults, ::testing::Values(100, (size_t{9} << 20) + 5));

TEST_P(Faults, EverythingIsFlushedBeforeTheRenameAndTheDirectoryAfter) {
  const std::vector<std::string> calls = CallsFor(New());
  const auto last_write = std::find(calls.rbegin(), calls.rend(), "pwrite").base();
  ASSERT_NE(last_write, calls.begin());
  const auto flush = std::find(last_write, calls.end(), "fsync");
  const auto rename = std::find(flush, calls.end(), "renameat");
  ASSERT_NE(rename, calls.end());
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "renameat"), 1);
  EXPECT_NE(std::find(rename, calls.end(), "fsync"), calls.end());
}

TEST_P(Faults, AFailingCallLeavesTheOldFileOrTheNewOneAndNothingElse) {
  const std::string contents = New();
  const std::vector<std::string> calls = CallsFor(contents);
  for (const int error : {ENOSPC, EIO, EROFS, EACCES, EDQUOT, EINTR, EINVAL}) {
    for (size_t failing = 0; failing < calls.size(); ++failing) {
      SCOPED_TRACE(absl::StrCat(calls[failing], " #", failing, " with ", strerror(error)));
      const SavedFile file;
      file.Write("old");
      const size_t descriptors = OpenDescriptors();
      FaultyFileSystem system([&](size_t number, const std::string&) { return number == failing ? error : kNone; });
      const absl::Status status = Replace(file.path(), contents, system);
      const bool in_place = status.ok() || absl::StrContains(status.message(), "the new file is in place");
      EXPECT_TRUE(file.Contents() == (in_place ? contents : "old")) << status;
      EXPECT_THAT(file.Names(), ElementsAre("model.pt"));
      EXPECT_EQ(OpenDescriptors(), descriptors);
      // A failure of these must be reported. An interrupted write is repeated, and so is one that O_DIRECT refuses.
      const bool repeated = error == EINTR || (error == EINVAL && GetParam() > 4096);
      const bool must_fail =
          calls[failing] == "pwrite" ? !repeated : absl::StrContains("fsync renameat", calls[failing]);
      EXPECT_TRUE(!must_fail || !status.ok());
      EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), strerror(error))) << status;
    }
  }
}

TEST_P(Faults, AShortWriteIsGoneOnWith) {
  const std::string contents = New();
  const std::vector<std::string> calls = CallsFor(contents);
  for (size_t failing = 0; failing < calls.size(); ++failing) {
    if (calls[failing] != "pwrite") continue;
    const SavedFile file;
    FaultyFileSystem system(
        [&](size_t number, const std::string&) { return number == failing ? FaultyFileSystem::kShort : kNone; });
    EXPECT_TRUE(Replace(file.path(), contents, system).ok());
    EXPECT_TRUE(file.Contents() == contents) << failing;
  }
}

TEST_P(Faults, ACrashAtAnyCallLeavesTheOldFileOrTheNewOneAndTheNextSaveTidiesUp) {
  const std::string contents = New();
  const size_t calls = CallsFor(contents).size();
  for (size_t crash = 0; crash < calls; ++crash) {
    SCOPED_TRACE(crash);
    const SavedFile file;
    file.Write("old");
    FaultyFileSystem system(
        [&](size_t number, const std::string&) { return number == crash ? FaultyFileSystem::kCrash : kNone; });
    (void)Replace(file.path(), contents, system);
    const std::string left = file.Contents();
    EXPECT_TRUE(left == "old" || left == contents);
    ASSERT_TRUE(Replace(file.path(), "next", file::FileSystem::Real()).ok());
    EXPECT_EQ(file.Contents(), "next");
    EXPECT_THAT(file.Names(), ElementsAre("model.pt"));
  }
}

TEST_P(Faults, ADirectoryThatIsDeletedMeanwhileIsAnError) {
  const std::string contents = New();
  const std::vector<std::string> calls = CallsFor(contents);
  const size_t rename = std::find(calls.begin(), calls.end(), "renameat") - calls.begin();
  for (size_t deleted = 0; deleted <= rename; ++deleted) {
    const SavedFile file;
    file.Write("old");
    FaultyFileSystem system([&](size_t number, const std::string&) {
      if (number == deleted) std::filesystem::remove_all(file.directory());
      return kNone;
    });
    const absl::Status status = Replace(file.path(), contents, system);
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << deleted << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
    EXPECT_THAT(file.Names(), ElementsAre());
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
