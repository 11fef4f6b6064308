#include "lockstep/data/image_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/testing/idx_files.h"

namespace lockstep::data {
namespace {

using ::lockstep::data::testing::TestFolder;
using ::lockstep::data::testing::WriteFile;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    std::filesystem::remove_all(TestFolder());
    std::filesystem::create_directories(TestFolder());
  }

  static void Write(const std::vector<std::string>& names) {
    for (const std::string& name : names) WriteFile(name, "");
  }
  static void MakeFolder(const std::string& name) { std::filesystem::create_directories(TestFolder() + "/" + name); }
  static void Link(const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(target, TestFolder() + "/" + name);
  }
  // "path class", the path without TestFolder().
  static std::vector<std::string> Samples(const ImageFolderOptions& options = {}) {
    const absl::StatusOr<ImageFolder> folder = ImageFolder::Create(TestFolder(), options);
    EXPECT_TRUE(folder.ok()) << folder.status();
    std::vector<std::string> samples;
    if (!folder.ok()) return samples;
    for (const ImageFolder::Sample& sample : folder->samples()) {
      EXPECT_TRUE(absl::StartsWith(sample.path, TestFolder() + "/")) << sample.path;
      samples.push_back(absl::StrCat(sample.path.substr(TestFolder().size() + 1), " ", sample.target));
    }
    return samples;
  }
  static absl::Status Error(const ImageFolderOptions& options = {}) {
    return ImageFolder::Create(TestFolder(), options).status();
  }
};

TEST_F(ImageFolderTest, ClassesAreTheFoldersByName) {
  Write({"dog/1.png", "cat/1.png", "Zebra/1.png", "file.png", ".hidden/1.png"});
  Link("cat", "also_cat");
  Link("nowhere", "broken");
  const absl::StatusOr<ImageFolder> folder = ImageFolder::Create(TestFolder());
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->classes(), ElementsAre(".hidden", "Zebra", "also_cat", "cat", "dog"));
  EXPECT_THAT(folder->class_to_idx(), UnorderedElementsAre(Pair(".hidden", 0), Pair("Zebra", 1), Pair("also_cat", 2),
                                                           Pair("cat", 3), Pair("dog", 4)));
}

TEST_F(ImageFolderTest, SamplesComeByFolderThenByName) {
  Write({"b/2.png", "b/10.png", "a/z.png", "a/m/1.png", "a/m/n/1.png", "a/m-1/1.png", "a/a.png"});
  // "m-1" precedes "m/n", since - precedes /.
  EXPECT_THAT(Samples(), ElementsAre("a/a.png 0", "a/z.png 0", "a/m/1.png 0", "a/m-1/1.png 0", "a/m/n/1.png 0",
                                     "b/10.png 1", "b/2.png 1"));
}

TEST_F(ImageFolderTest, FilesCountByTheirExtensionInAnyCase) {
  Write({"a/1.JPG", "a/2.jPeG", "a/3.png", "a/4.ppm", "a/5.bmp", "a/6.pgm", "a/7.tif", "a/8.TIFF", "a/9.webp"});
  Write({"a/.jpg", "a/x.gif", "a/x.jpg.txt", "a/xjpg", "a/x.png~", "a/x"});
  EXPECT_THAT(Samples(), ElementsAre("a/.jpg 0", "a/1.JPG 0", "a/2.jPeG 0", "a/3.png 0", "a/4.ppm 0", "a/5.bmp 0",
                                     "a/6.pgm 0", "a/7.tif 0", "a/8.TIFF 0", "a/9.webp 0"));
}

TEST_F(ImageFolderTest, ExtensionsOrAFunctionMaySayWhatCounts) {
  Write({"a/1.png", "a/2.GIF", "a/3.npy"});
  ImageFolderOptions options;
  options.extensions = {".gif", ".npy"};
  EXPECT_THAT(Samples(options), ElementsAre("a/2.GIF 0", "a/3.npy 0"));
  options.is_valid_file = [](absl::string_view path) { return path == TestFolder() + "/a/1.png"; };
  EXPECT_THAT(Samples(options), ElementsAre("a/1.png 0"));
}

TEST_F(ImageFolderTest, FollowsLinksToFoldersAndListsBrokenOnes) {
  Write({"a/1.png", "elsewhere/deep/2.png"});
  Link("../elsewhere", "a/link");
  Link("nowhere.png", "a/broken.png");
  Link("1.png", "a/same.png");
  EXPECT_THAT(Samples(), ElementsAre("a/1.png 0", "a/broken.png 0", "a/same.png 0", "a/link/deep/2.png 0",
                                     "elsewhere/deep/2.png 1"));
}

TEST_F(ImageFolderTest, SaysWhichLinkLeadsBackToAFolderAboveIt) {
  Write({"a/1.png"});
  Link(".", "a/again");
  EXPECT_EQ(Error(),
            absl::FailedPreconditionError(absl::StrCat(TestFolder(), "/a/again: a link leads back to ", TestFolder(),
                                                       "/a, a folder above it, whose files would repeat without end")));
}

TEST_F(ImageFolderTest, SaysSoOfLinksThatLeadBackByWayOfAnotherFolder) {
  Write({"a/1.png", "b/deep/2.png"});
  Link("../b", "a/b");
  Link("../../a", "b/deep/a");
  EXPECT_EQ(Error(),
            absl::FailedPreconditionError(absl::StrCat(TestFolder(), "/a/b/deep/a: a link leads back to ", TestFolder(),
                                                       "/a, a folder above it, whose files would repeat without end")));
}

TEST_F(ImageFolderTest, TwoLinksToOneFolderAreNotACircle) {
  Write({"a/1.png", "b/2.png"});
  Link("../b", "a/b");
  Link("../b", "a/c");
  EXPECT_THAT(Samples(), ElementsAre("a/1.png 0", "a/b/2.png 0", "a/c/2.png 0", "b/2.png 1"));
}

TEST_F(ImageFolderTest, SaysWhichClassesHaveNoSamples) {
  Write({"a/1.png", "b/1.txt"});
  MakeFolder("c");
  ImageFolderOptions options;
  options.extensions = {".jpg", ".png"};
  EXPECT_EQ(Error(options),
            absl::NotFoundError(absl::StrCat(TestFolder(),
                                             ": expected in each class's folder a file .jpg, .png, found none for "
                                             "2 classes: b, c")));
  options.is_valid_file = [](absl::string_view) { return false; };
  for (const std::string name : {"d", "e", "f"}) MakeFolder(name);
  EXPECT_EQ(Error(options), absl::NotFoundError(absl::StrCat(
                                TestFolder(),
                                ": expected in each class's folder a file that is_valid_file accepts, found none for 6 "
                                "classes: a, b, c, d, e, ...")));
  options.allow_empty = true;
  EXPECT_THAT(Samples(options), IsEmpty());
}

TEST_F(ImageFolderTest, AnEmptyClassKeepsItsIndexIfAllowed) {
  Write({"b/1.png"});
  MakeFolder("a");
  ImageFolderOptions options;
  options.allow_empty = true;
  EXPECT_THAT(Samples(options), ElementsAre("b/1.png 1"));
}

TEST_F(ImageFolderTest, SaysThatThereIsNoFolder) {
  Write({"1.png"});
  EXPECT_EQ(Error(),
            absl::NotFoundError(absl::StrCat(TestFolder(), ": expected a folder for each class, found no folder")));
  EXPECT_EQ(ImageFolder::Create(TestFolder() + "/none").status(),
            absl::NotFoundError(TestFolder() + "/none: cannot be opened: No such file or directory"));
  EXPECT_EQ(ImageFolder::Create(TestFolder() + "/1.png").status().message(),
            TestFolder() + "/1.png: cannot be opened: Not a directory");
}

TEST_F(ImageFolderTest, SaysWhichLinkLeadsNowhere) {
  Write({"a/1.png"});
  Link("loop", "loop");
  EXPECT_EQ(Error().message(), TestFolder() + "/loop: cannot be followed: Too many levels of symbolic links");
}

TEST_F(ImageFolderTest, SaysWhichFolderCannotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read any folder";
  Write({"a/1.png", "a/locked/2.png"});
  const std::string locked = TestFolder() + "/a/locked";
  ASSERT_EQ(chmod(locked.c_str(), 0), 0);
  EXPECT_EQ(Error(), absl::PermissionDeniedError(locked + ": cannot be opened: Permission denied"));
  chmod(locked.c_str(), 0700);
}

TEST_F(ImageFolderTest, ARootThatEndsInASlashGetsNoOther) {
  Write({"a/1.png"});
  EXPECT_EQ(ImageFolder::Create(TestFolder() + "/")->samples()[0].path, TestFolder() + "/a/1.png");
}

}  // namespace
}  // namespace lockstep::data
