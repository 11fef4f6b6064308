#include "lockstep/models/transformer/text_generation.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "lockstep/data/tokens/byte_tokenizer.h"
#include "lockstep/models/transformer/testing/tiny.h"

namespace lockstep::models {
namespace {

// As Llama's, which leaves out the space before a text's first word: each token is a word of one letter.
class Words : public data::Tokenizer {
 public:
  int64_t vocab_size() const override { return 61; }
  int64_t end_of_text() const override { return 60; }
  absl::StatusOr<std::vector<int64_t>> Encode(absl::string_view text) const override {
    return text.empty() ? std::vector<int64_t>() : std::vector<int64_t>{3};
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) text += {' ', static_cast<char>('A' + token)};
    return std::string(absl::StripPrefix(text, " "));
  }
};

std::string Written(CausalLM& net, const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::ostringstream out;
  EXPECT_EQ(GenerateText(net, tokenizer, prompt, {.seed = 1, .max_new_tokens = 30}, out), absl::OkStatus());
  return out.str();
}

std::vector<int64_t> Tokens(CausalLM& net, std::vector<int64_t> prompt, bool with_prompt) {
  const auto added = Generate(net, prompt, {.seed = 1, .max_new_tokens = 30}).value();
  if (!with_prompt) prompt.clear();
  prompt.insert(prompt.end(), added.begin(), added.end());
  return prompt;
}

TEST(GenerateText, WritesTheTextOfAllTokens) {
  CausalLM net = MakeCausalLM(testing::TinyConfigs()[0]).value();
  testing::Disturb(*net);
  EXPECT_EQ(Written(net, Words(), "D"), *Words().Decode(Tokens(net, {3}, /*with_prompt=*/true)) + "\n");
  const data::ByteTokenizer bytes;
  EXPECT_EQ(Written(net, bytes, "!"), "!" + *bytes.Decode(Tokens(net, {'!'}, /*with_prompt=*/false)) + "\n");
}

TEST(GenerateText, BeginsATextWithoutAPrompt) {
  CausalLM net = MakeCausalLM(testing::TinyConfigs()[0]).value();
  testing::Disturb(*net);
  const std::string whole = *Words().Decode(Tokens(net, {60}, /*with_prompt=*/true));
  EXPECT_EQ(Written(net, Words(), ""), whole.substr(1) + "\n");
}

TEST(GenerateText, WritesNumbersOfAnotherVocabulary) {
  CausalLMConfig config = testing::TinyConfigs()[0];
  config.vocab_size = 62;
  CausalLM net = MakeCausalLM(config).value();
  std::string expected = "D";
  for (const int64_t token : Tokens(net, {3}, /*with_prompt=*/false)) absl::StrAppend(&expected, token, " ");
  EXPECT_EQ(Written(net, Words(), "D"), expected + "\n");
}

}  // namespace
}  // namespace lockstep::models
