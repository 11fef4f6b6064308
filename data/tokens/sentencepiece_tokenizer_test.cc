#include "lockstep/data/tokens/sentencepiece_tokenizer.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;

std::string Write(const std::string& name, const std::string& text) {
  std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Lines of words in the order of a linear congruence.
std::string Prose(int lines) {
  const std::vector<std::string> words = {"the",    "beginning", "heaven", "earth", "without", "form",    "darkness",
                                          "spirit", "moved",     "waters", "light", "divided", "evening", "morning"};
  std::string text;
  uint32_t state = 1;
  for (int word = 0; word < lines * 9; ++word) {
    state = state * 1664525 + 1013904223;
    absl::StrAppend(&text, words[(state >> 16) % words.size()], word % 9 == 8 ? ".\n" : " ");
  }
  return text;
}

// A small model of Prose(): one for all tests.
const std::string& Model() {
  static const std::string path = [] {
    std::string model = absl::StrCat(::testing::TempDir(), "/prose.model");
    EXPECT_EQ(SentencePieceTokenizer::Train({Write("prose", Prose(200))}, model, 340).status(), absl::OkStatus());
    return model;
  }();
  return path;
}

TEST(SentencePieceTokenizer, LearnsThePiecesOfAText) {
  const auto tokenizer = SentencePieceTokenizer::Load(Model()).value();
  EXPECT_EQ(tokenizer->vocab_size(), 340);
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  const std::string text = Prose(50);
  const std::vector<int64_t> tokens = tokenizer->Encode(text).value();
  EXPECT_THAT(tokens.size(), Lt(text.size() / 4));
  EXPECT_EQ(tokenizer->Decode(tokens).value(), text);
}

TEST(SentencePieceTokenizer, LearnsTheSameModelAgain) {
  const std::string text = BytesOf(absl::StrCat(::testing::TempDir(), "/prose"));
  const std::string model = absl::StrCat(::testing::TempDir(), "/again.model");
  // Its lines in two files.
  const size_t half = text.find('\n', text.size() / 2) + 1;
  const std::vector<std::string> halves = {Write("half0", text.substr(0, half)), Write("half1", text.substr(half))};
  ASSERT_EQ(SentencePieceTokenizer::Train(halves, model, 340).status(), absl::OkStatus());
  EXPECT_EQ(BytesOf(model), BytesOf(Model()));
}

TEST(SentencePieceTokenizer, ReturnsAnyText) {
  const auto tokenizer = SentencePieceTokenizer::Load(Model()).value();
  std::string all;
  for (int byte = 0; byte < 128; ++byte) all.push_back(static_cast<char>(byte));
  for (const std::string& text :
       std::vector<std::string>{"", " ", "  two  spaces  ", "\n\nline\r\n\tend\n", "<s></s><unk><0x0A>",
                                "na\u00efve \u2014 \u65e5\u672c\u8a9e", "e\u0301 \u212b \ufb01",
                                "\U0001F600\U0001F468\u200D\U0001F469", "\u00a0\u3000\ufeff", "\ufffd\u2585", all})
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text).value()).value(), text);
}

TEST(SentencePieceTokenizer, EncodesTextThatIsNoUtf8AsAnError) {
  const auto tokenizer = SentencePieceTokenizer::Load(Model()).value();
  const absl::Status status = tokenizer->Encode("one\ntwo\nCaf\xe9!\nfour").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "line 3 is not UTF-8: Caf\\xe9!");
  for (const std::string& bad :
       std::vector<std::string>{"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\xf5\x80\x80\x80"})
    EXPECT_EQ(tokenizer->Encode(bad).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SentencePieceTokenizer, DecodesAnyTokens) {
  const auto tokenizer = SentencePieceTokenizer::Load(Model()).value();
  for (int64_t token = 0; token < tokenizer->vocab_size(); ++token)
    EXPECT_EQ(tokenizer->Decode({token, token}).status(), absl::OkStatus()) << token;
  EXPECT_EQ(tokenizer->Decode({tokenizer->end_of_text()}).value(), "");
  for (const int64_t token : {int64_t{-1}, int64_t{340}, int64_t{1} << 32}) {
    const absl::Status status = tokenizer->Decode({5, token}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("token 1 is ", token, ", expected 0 to 339, as the vocabulary has 340 tokens"));
  }
}

TEST(SentencePieceTokenizer, RefusesATextThatItCannotLearnFrom) {
  const auto error = [](const std::vector<std::string>& files, int64_t vocab_size = 300,
                        SentencePieceOptions options = {}) {
    const std::string model = absl::StrCat(::testing::TempDir(), "/refused.model");
    const absl::Status status = SentencePieceTokenizer::Train(files, model, vocab_size, options).status();
    EXPECT_FALSE(std::ifstream(model).good());
    return std::string(status.message());
  };
  const std::string prose = Write("prose2", Prose(9));
  EXPECT_THAT(error({}), HasSubstr("the number of text files is 0, expected at least 1"));
  EXPECT_THAT(error({prose, "/no/such/text"}), HasSubstr("/no/such/text: "));
  EXPECT_THAT(error({prose, Write("empty", "")}), HasSubstr("/empty: is empty, expected a text"));
  EXPECT_THAT(error({Write("latin1", "good\ncaf\xe9\n")}), HasSubstr("/latin1: line 2 is not UTF-8: caf\\xe9"));
  EXPECT_THAT(error({Write("newlines", "\n\n\n")}), HasSubstr("the text has no line with a character"));
  EXPECT_THAT(error({prose}, 259), HasSubstr("vocab_size is 259, expected 260 to 2^24"));
  EXPECT_THAT(error({prose}, 262),
              HasSubstr("vocab_size is 262: Vocabulary size is smaller than required_chars. 262 vs "));
  EXPECT_THAT(error({prose}, 5000),
              HasSubstr("vocab_size is 5000: Vocabulary size too high (5000). Please set it to a value <= "));
  EXPECT_THAT(error({prose}, 300, {.character_coverage = 0.5}), HasSubstr("character_coverage is 0.5, expected 0.98"));
  EXPECT_THAT(error({prose}, 300, {.most_text_bytes = 0}), HasSubstr("most_text_bytes is 0, expected at least 1"));
}

TEST(SentencePieceTokenizer, RefusesAFileThatIsNoModel) {
  const auto error = [](const std::string& path) { return SentencePieceTokenizer::Load(path).status(); };
  EXPECT_EQ(error("/no/such.model").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error(::testing::TempDir()).message(), HasSubstr("is a directory, not a file"));
  const std::string bytes = BytesOf(Model());
  for (const std::string& damaged :
       std::vector<std::string>{"", "no model", bytes.substr(0, bytes.size() / 2), bytes.substr(100), bytes + bytes}) {
    const absl::Status status = error(Write("damaged.model", damaged));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << damaged.size();
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("/damaged.model: expected a sentencepiece model, found ",
                                                         damaged.size(), " bytes that are none")));
  }
}

// Whatever a changed byte makes of a model: an error, or a tokenizer that works.
TEST(SentencePieceTokenizer, SurvivesDamagedModels) {
  const std::string bytes = BytesOf(Model());
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = bytes;
    for (uint32_t changes = random() % 4 + 1; changes > 0; --changes)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto tokenizer = SentencePieceTokenizer::Load(Write("flipped.model", damaged));
    if (!tokenizer.ok()) continue;
    const auto tokens = (*tokenizer)->Encode("In the beginning, na\u00efve \U0001F600\n");
    if (tokens.ok()) EXPECT_EQ((*tokenizer)->Decode(*tokens).status(), absl::OkStatus());
  }
}

}  // namespace
}  // namespace lockstep::data
