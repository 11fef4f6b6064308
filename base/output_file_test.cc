#include "lockstep/base/output_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A new empty folder, with a slash at its end.
std::string NewFolder() {
  std::string path = testing::TempDir() + "/output_file.XXXXXX";
  EXPECT_NE(mkdtemp(&path[0]), nullptr);
  return path + "/";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OutputFile, HoldsWhatIsWrittenAndWhatWasThereIfItAppends) {
  const std::string path = NewFolder() + "file";
  for (const bool append : {false, true, false, true}) {
    auto file = OutputFile::Create("it", path, append);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write("ab").ok());
    ASSERT_TRUE(file->Close().ok());
    EXPECT_EQ(ReadFile(path), append ? "abab" : "ab");
  }
}

TEST(OutputFile, ErrorsNameTheFileAndWhatTheSystemSaid) {
  EXPECT_EQ(OutputFile::Create("--trace-file=/no/such", "/no/such").status().message(),
            "--trace-file=/no/such: cannot be opened for writing: No such file or directory");
  auto full = OutputFile::Create("--json-file=/dev/full", "/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->Write("x"),
            absl::ResourceExhaustedError("--json-file=/dev/full: cannot be written: No space left on device"));
}

TEST(CheckOutput, LeavesNoFileAndChangesNone) {
  const std::string folder = NewFolder(), there = folder + "there";
  EXPECT_TRUE(CheckOutputFile("it", folder + "new").ok());
  EXPECT_TRUE(CheckOutputFolder("it", folder).ok());
  EXPECT_TRUE(CheckOutputFolder("it", folder + "a/b/c", /*or_missing=*/true).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::ofstream(there) << "kept";
  EXPECT_TRUE(CheckOutputFile("it", there).ok());
  EXPECT_EQ(ReadFile(there), "kept");
}

TEST(CheckOutput, LeavesAPipesReaderAlone) {
  const std::string path = NewFolder() + "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(CheckOutputFile("it", path).ok());
}

// In /proc nobody can create a file, though access() says that root can.
TEST(CheckOutput, TellsWhyThereCanBeNoFile) {
  const std::string folder = NewFolder(), file = folder + "file";
  std::ofstream(file) << "";
  EXPECT_EQ(CheckOutputFile("it", folder).message(), "it: cannot be opened for writing: Is a directory");
  EXPECT_EQ(CheckOutputFile("it", file + "/below").message(), "it: cannot be opened for writing: Not a directory");
  EXPECT_EQ(CheckOutputFile("it", folder + "none/file").message(),
            "it: no file can be created there: No such file or directory");
  EXPECT_EQ(CheckOutputFolder("it", file).message(), "it: no file can be created there: Not a directory");
  EXPECT_EQ(CheckOutputFolder("it", folder + "none").message(),
            "it: no file can be created there: No such file or directory");
  EXPECT_EQ(CheckOutputFolder("it", file + "/below", /*or_missing=*/true).message(),
            "it: no file can be created there: Not a directory");
  EXPECT_NE(CheckOutputFolder("it", "/proc").message(), "");
  EXPECT_NE(CheckOutputFolder("it", "/proc/none", /*or_missing=*/true).message(), "");
}

}  // namespace
}  // namespace lockstep
