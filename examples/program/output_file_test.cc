#include "lockstep/examples/program/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/examples/program/json_lines.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::NewFolder;
using launch::testing::ReadFile;

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
  auto full = OutputFile::Create("/dev/full", "/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->Write("x"), absl::ResourceExhaustedError("/dev/full: cannot be written: No space left on device"));
}

TEST(OutputFile, AFullDiskIsAnErrorOfTheJsonLineThatWasLost) {
  auto lines = JsonLines::Create("json-file", "/dev/full", /*append=*/false);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->Write("{}").message(), "--json-file=/dev/full: cannot be written: No space left on device");
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
}  // namespace lockstep::examples
