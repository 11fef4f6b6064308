#include "lockstep/data/tokens/encode_text_files.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/data/tokens/byte_tokenizer.h"
#include "lockstep/data/tokens/sentencepiece_tokenizer.h"
#include "lockstep/data/tokens/token_file.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) { return absl::StrCat(::testing::TempDir(), "/", name); }

std::string Write(const std::string& name, const std::string& text) {
  std::ofstream(Path(name), std::ios::binary) << text;
  return Path(name);
}

std::vector<int64_t> TokensOf(const std::string& path) {
  const TokenFile file = TokenFile::Open(path).value();
  std::vector<int64_t> inputs(file.size() - 1), targets(file.size() - 1);
  const UniqueFd descriptor = OpenRegularFile(path).value();
  EXPECT_EQ(file.Read(descriptor.get(), 0, absl::MakeSpan(inputs), absl::MakeSpan(targets)), absl::OkStatus());
  inputs.push_back(targets.back());
  return inputs;
}

TEST(EncodeTextFiles, EndsEachText) {
  const std::vector<std::string> texts = {Write("a", "ab\n"), Write("b", "c")};
  EXPECT_EQ(EncodeTextFiles(ByteTokenizer(), texts, Path("ab.bin")).value(), 6);
  EXPECT_THAT(TokensOf(Path("ab.bin")), ElementsAre('a', 'b', '\n', 256, 'c', 256));
}

// Texts of many pieces, in which lines, or characters of one line, end before, at and behind a piece's end.
TEST(EncodeTextFiles, EncodesALongTextAsEncodeDoes) {
  std::string lines, line;
  for (int i = 0; lines.size() < 100'000; ++i)
    absl::StrAppend(&lines, "line ", i, " \u2014 of some length", i % 7, "\n");
  while (line.size() < 100'000) absl::StrAppend(&line, "x\u65e5\u00e9\U0001F600");
  const auto model = SentencePieceTokenizer::Train({Write("lines", lines)}, Path("lines.model"), 300).value();
  const ByteTokenizer bytes;
  for (const Tokenizer* tokenizer :
       {static_cast<const Tokenizer*>(model.get()), static_cast<const Tokenizer*>(&bytes)}) {
    for (const std::string& text : {lines, line + "\n" + lines}) {
      const int64_t count = EncodeTextFiles(*tokenizer, {Write("long", text)}, Path("long.bin")).value();
      std::vector<int64_t> expected = tokenizer->Encode(text).value();
      expected.push_back(tokenizer->end_of_text());
      EXPECT_EQ(count, expected.size());
      EXPECT_EQ(TokensOf(Path("long.bin")), expected);
    }
  }
}

TEST(EncodeTextFiles, NamesTheTextAndLeavesTheOldFile) {
  const std::string good = Write("good", "good\n"), out = Path("kept.bin");
  ASSERT_EQ(EncodeTextFiles(ByteTokenizer(), {good}, out).status(), absl::OkStatus());
  const auto model =
      SentencePieceTokenizer::Train({Write("few", "a few words of text\n")}, Path("few.model"), 275).value();
  const auto error = [&](const std::string& text, const Tokenizer& tokenizer) {
    const absl::Status status = EncodeTextFiles(tokenizer, {good, text}, out).status();
    EXPECT_EQ(TokensOf(out).size(), 6);
    return std::string(status.message());
  };
  EXPECT_THAT(error("/no/such/text", ByteTokenizer()), HasSubstr("/no/such/text: "));
  EXPECT_THAT(error(::testing::TempDir(), ByteTokenizer()), HasSubstr("expected a regular file, found a folder"));
  EXPECT_THAT(error(Write("empty", ""), ByteTokenizer()), HasSubstr("/empty: is empty, expected a text"));
  EXPECT_THAT(error(Write("latin1", std::string(70'000, '\n') + "a\nb\xe9\n"), *model),
              HasSubstr("/latin1: from byte 65536 on: line 4466 is not UTF-8: b\\xe9"));
  EXPECT_THAT(EncodeTextFiles(ByteTokenizer(), {good}, "/no/such/folder/a").status().message(),
              HasSubstr("/no/such/folder/a: "));
}

}  // namespace
}  // namespace lockstep::data
