#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/tokens/byte_tokenizer.h"
#include "lockstep/data/tokens/load_tokenizer.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteTokenizer, ReturnsAnyBytes) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int byte = 0; byte < 512; ++byte) text.push_back(static_cast<char>(byte));
  const std::vector<int64_t> tokens = tokenizer.Encode(text).value();
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], i % 256);
  EXPECT_EQ(tokenizer.Decode(tokens).value(), text);
  EXPECT_THAT(tokenizer.Encode("").value(), ElementsAre());
}

TEST(ByteTokenizer, HasOneTokenMoreBetweenTexts) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256);
  EXPECT_EQ(tokenizer.Decode({'a', 256, 'b'}).value(), "ab");
}

TEST(ByteTokenizer, NamesATokenThatIsNone) {
  const absl::Status status = ByteTokenizer().Decode({65, 257}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "token 1 is 257, expected 0 to 256, as the vocabulary has 257 tokens");
  EXPECT_THAT(ByteTokenizer().Decode({-1}).status().message(), HasSubstr("token 0 is -1, "));
}

TEST(LoadTokenizer, TakesBytesOrAModel) {
  EXPECT_EQ(LoadTokenizer("bytes").value()->vocab_size(), 257);
  const absl::Status none = LoadTokenizer("/no/such/file.model").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("/no/such/file.model: "));
  const absl::Status unknown = LoadTokenizer("gpt2").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.message(),
            "tokenizer \"gpt2\": expected \"bytes\" or the path of a sentencepiece model, FILE.model");
}

}  // namespace
}  // namespace lockstep::data
