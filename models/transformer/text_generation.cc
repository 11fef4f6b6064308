#include "lockstep/models/transformer/text_generation.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"

namespace lockstep::models {
namespace {

// The text of `token` behind another one. A tokenizer may leave out the space before a text's first word.
absl::StatusOr<std::string> TextBehind(const data::Tokenizer& tokenizer, int64_t before, int64_t token) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string first, tokenizer.Decode({before}));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string both, tokenizer.Decode({before, token}));
  absl::string_view rest = both;
  if (absl::ConsumePrefix(&rest, first)) return std::string(rest);
  return tokenizer.Decode({token});
}

}  // namespace

absl::Status GenerateText(CausalLM& net, const data::Tokenizer& tokenizer, const std::string& prompt,
                          const SamplingOptions& options, std::ostream& out) {
  const bool is_text = net->config().vocab_size <= tokenizer.vocab_size();
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> tokens, tokenizer.Encode(prompt));
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_text());
  out << prompt;
  int64_t last = tokens.back();
  const auto write = [&](int64_t token) {
    const absl::StatusOr<std::string> text = TextBehind(tokenizer, last, token);
    out << (is_text && text.ok() ? *text : absl::StrCat(token, " ")) << std::flush;
    last = token;
  };
  LOCKSTEP_RETURN_IF_ERROR(Generate(net, std::move(tokens), options, write).status());
  out << std::endl;
  return absl::OkStatus();
}

}  // namespace lockstep::models
