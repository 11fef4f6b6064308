// Trains and runs tokenizers for tokenizer_peer_test.
//
//   tokenizer_print train MODEL VOCAB_SIZE TEXT...  writes a model
//   tokenizer_print run MODEL                       answers each line of standard input with one line
//
// A line is "e" and the bytes of a text in hexadecimal digits, whose tokens are the answer, or "d" and tokens, whose text
// is, in such digits.

#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/load_tokenizer.h"
#include "lockstep/data/tokens/sentencepiece_tokenizer.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace {

using ::lockstep::data::LoadTokenizer;
using ::lockstep::data::SentencePieceTokenizer;
using ::lockstep::data::Tokenizer;

absl::StatusOr<std::string> Answer(const Tokenizer& tokenizer, const std::string& line) {
  std::istringstream words(line.substr(1));
  if (line[0] == 'e') {
    std::string hexadecimal;
    words >> hexadecimal;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens, tokenizer.Encode(absl::HexStringToBytes(hexadecimal)));
    return absl::StrJoin(tokens, " ");
  }
  std::vector<int64_t> tokens;
  for (int64_t token = 0; words >> token;) tokens.push_back(token);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, tokenizer.Decode(tokens));
  return absl::BytesToHexString(text);
}

absl::Status Run(const std::string& model) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(model));
  for (std::string line; std::getline(std::cin, line);) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string answer, Answer(*tokenizer, line));
    std::cout << answer << '\n';
  }
  return absl::OkStatus();
}

absl::Status Train(const std::vector<std::string>& words) {
  int64_t vocab_size = 0;
  if (!absl::SimpleAtoi(words.at(2), &vocab_size)) return absl::InvalidArgumentError(words[2]);
  return SentencePieceTokenizer::Train({words.begin() + 3, words.end()}, words.at(1), vocab_size).status();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const absl::Status status = words.at(0) == "train" ? Train(words) : Run(words.at(1));
  if (status.ok()) return 0;
  std::cerr << status << '\n';
  return 1;
}
