#include "lockstep/data/tokens/open_texts.h"

#include <ATen/ATen.h>
#include <stdlib.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/tokens/byte_tokenizer.h"
#include "lockstep/data/tokens/sentencepiece_tokenizer.h"
#include "lockstep/data/tokens/token_file_writer.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class OpenTextsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), /*overwrite=*/1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  std::vector<fs::path> Cached() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_ / "lockstep" / "tokens")) files.push_back(entry.path());
    return files;
  }

  static std::vector<int64_t> Inputs(const TokenDataset& blocks, int64_t index = 0) {
    at::Generator unused = at::globalContext().defaultGenerator(at::kCPU);
    const at::Tensor data = blocks.Get(index, unused).value().data;
    return std::vector<int64_t>(data.data_ptr<int64_t>(), data.data_ptr<int64_t>() + data.numel());
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / "open_texts";
  const ByteTokenizer bytes_ = {};
  const TokenDatasetOptions options_ = {.block = 4};
};

TEST_F(OpenTextsTest, EncodesTextsOnce) {
  const std::vector<std::string> texts = {Write("a", "ab"), Write("b", "cd")};
  const auto first = OpenTexts(texts, "bytes", bytes_, options_).value();
  EXPECT_EQ(Inputs(*first), (std::vector<int64_t>{'a', 'b', 256, 'c'}));
  ASSERT_THAT(Cached(), SizeIs(1));
  std::ofstream(Cached()[0], std::ios::binary) << std::string("x\0y\0z\0x\0y\0", 10);
  const auto again = OpenTexts(texts, "bytes", bytes_, options_).value();
  EXPECT_EQ(Inputs(*again), (std::vector<int64_t>{'x', 'y', 'z', 'x'}));
}

TEST_F(OpenTextsTest, KeepsOneFileForATextThatChanges) {
  const std::string text = Write("text", "before"), other = Write("other", "stays");
  const auto before = OpenTexts({text}, "bytes", bytes_, options_).value();
  ASSERT_TRUE(OpenTexts({other}, "bytes", bytes_, options_).ok());
  Write("text", "since then");
  const auto since = OpenTexts({text}, "bytes", bytes_, options_).value();
  EXPECT_THAT(Cached(), SizeIs(2));
  EXPECT_EQ(Inputs(*since), (std::vector<int64_t>{'s', 'i', 'n', 'c'}));
  EXPECT_EQ(Inputs(*before), (std::vector<int64_t>{'b', 'e', 'f', 'o'})) << "an open file was lost";
}

TEST_F(OpenTextsTest, RemovesTokensThatNobodyHasOpenedForAMonth) {
  const auto open = [&](const std::string& name) {
    EXPECT_TRUE(OpenTexts({Write(name, name)}, "bytes", bytes_, options_).ok());
  };
  const auto age_all = [&](int days) {
    for (const fs::path& file : Cached())
      fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(24 * days));
  };
  open("unused");
  const fs::path unused = Cached()[0];
  const std::string used = Write("used", "used");
  ASSERT_TRUE(OpenTexts({used}, "bytes", bytes_, options_).ok());
  age_all(29);
  open("a new text");
  EXPECT_THAT(Cached(), SizeIs(3));
  age_all(31);
  ASSERT_TRUE(OpenTexts({used}, "bytes", bytes_, options_).ok());
  EXPECT_THAT(Cached(), SizeIs(3)) << "removed without a new file";
  open("a newer text");
  EXPECT_THAT(Cached(), SizeIs(2)) << "used and newer";
  EXPECT_FALSE(fs::exists(unused));
}

TEST_F(OpenTextsTest, EncodesAnewWithAnotherTokenizer) {
  const std::string text = Write("text", "a few words of text\n"), model = folder_ / "few.model";
  const auto pieces = SentencePieceTokenizer::Train({text}, model, 275).value();
  const auto a = OpenTexts({text}, "bytes", bytes_, options_).value();
  const auto b = OpenTexts({text}, model, *pieces, options_).value();
  EXPECT_NE(Inputs(*a), Inputs(*b));
  EXPECT_THAT(Cached(), SizeIs(2));
}

// A tokenizer with tokens of 32 bits.
class Wide : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 70'000; }
  int64_t end_of_text() const override { return 0; }
  absl::StatusOr<std::vector<int64_t>> Encode(absl::string_view text) const override {
    return std::vector<int64_t>(text.size(), 69'999);
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int64_t>) const override { return ""; }
};

TEST_F(OpenTextsTest, HasTokensOf32Bits) {
  const auto blocks = OpenTexts({Write("text", "abcdef")}, "wide", Wide(), options_).value();
  EXPECT_EQ(blocks->tokens(), 7);
  EXPECT_EQ(Inputs(*blocks), std::vector<int64_t>(4, 69'999));
}

TEST_F(OpenTextsTest, OpensTheBibleWithoutFiles) {
  const auto blocks = OpenTexts({}, "bytes", bytes_, options_).value();
  EXPECT_EQ(blocks->tokens(), 4'138'973 + 66);
  EXPECT_EQ(Inputs(*blocks), (std::vector<int64_t>{'I', 'n', ' ', 't'}));
}

TEST_F(OpenTextsTest, NamesWhatIsWrong) {
  const auto error = [&](const std::string& file, int64_t vocabulary = 0) {
    TokenDatasetOptions options = options_;
    options.vocabulary = vocabulary;
    return std::string(OpenTexts({file}, "bytes", bytes_, options).status().message());
  };
  EXPECT_THAT(error("/no/such/text"), HasSubstr("/no/such/text: No such file"));
  EXPECT_THAT(error(Write("text.gz", "x")), HasSubstr("/text.gz: is compressed: gunzip it first"));
  EXPECT_EQ(error(Write("text", "text"), 100),
            "tokenizer \"bytes\" has 257 tokens, expected at most 100, the size of the vocabulary");
  const std::string tokens = folder_ / "tokens.bin";
  ASSERT_TRUE(WriteTokenFile(tokens, {1, 2, 3, 4, 5, 6, 7, 300, 8}, 301).ok());
  EXPECT_THAT(error(tokens, 257), HasSubstr("tokens.bin: token 7 is 300, expected below 257"));
  EXPECT_EQ(error(tokens, 301), "");
  setenv("XDG_CACHE_HOME", "/proc/none", 1);
  EXPECT_THAT(error(Write("text", "text")), HasSubstr("/proc/none/lockstep/tokens: "));
}

}  // namespace
}  // namespace lockstep::data
