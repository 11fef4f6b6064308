#include "lockstep/examples/gpt/text.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/encode_text_files.h"
#include "lockstep/data/tokens/king_james_bible.h"
#include "lockstep/data/tokens/token_file_writer.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

// A line for a file that changes when the file does.
absl::StatusOr<std::string> StampOf(const std::string& file) {
  if (absl::EndsWith(file, ".gz"))
    return absl::InvalidArgumentError(absl::StrCat(file, ": is compressed: gunzip it first"));
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) return absl::NotFoundError(absl::StrCat(file, ": ", error.message()));
  return absl::StrCat("\n", fs::absolute(file).string(), " ", size, " ",
                      fs::last_write_time(file).time_since_epoch().count());
}

absl::Status EncodeBible(const data::Tokenizer& tokenizer, const std::string& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> books, data::KingJamesBible());
  std::vector<int64_t> all;
  for (const std::string& book : books) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens, tokenizer.Encode(book));
    all.insert(all.end(), tokens.begin(), tokens.end());
    all.push_back(tokenizer.end_of_text());
  }
  return data::WriteTokenFile(file, all, tokenizer.vocab_size());
}

// Writes the tokens of the texts to the user's cache folder, unless they are there. Returns the file. All ranks may do
// this at once: each writes the same file, in one step.
absl::StatusOr<std::string> Encoded(const std::vector<std::string>& texts, const std::string& tokenizer_name,
                                    const data::Tokenizer& tokenizer) {
  std::string stamps = tokenizer_name;
  for (const std::string& text : texts) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string stamp, StampOf(text));
    stamps += stamp;
  }
  if (fs::exists(tokenizer_name)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string stamp, StampOf(tokenizer_name));
    stamps += stamp;
  }
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const fs::path folder = (cache ? fs::path(cache) : fs::path(home ? home : "/tmp") / ".cache") / "lockstep" / "tokens";
  const fs::path file = folder / absl::StrCat(absl::Hex(std::hash<std::string>()(stamps)), ".bin");
  if (fs::exists(file)) return file.string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder.string(), ": ", error.message()));
  if (texts.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(EncodeBible(tokenizer, file.string()));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(data::EncodeTextFiles(tokenizer, texts, file.string()).status());
  }
  return file.string();
}

absl::Status CheckVocabulary(const data::Tokenizer& tokenizer, const models::CausalLMConfig& config) {
  if (tokenizer.vocab_size() <= config.vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--tokenizer has ", tokenizer.vocab_size(),
                                                 " tokens: expected at most the model's vocab_size, ",
                                                 config.vocab_size));
}

}  // namespace

absl::StatusOr<Text> OpenText(const std::string& files, const std::string& tokenizer_name,
                              std::unique_ptr<data::Tokenizer> tokenizer, int64_t block,
                              const models::CausalLMConfig& config) {
  std::vector<std::string> names = absl::StrSplit(files, ',', absl::SkipEmpty());
  data::TokenDatasetOptions options;
  options.block = block;
  options.vocabulary = config.vocab_size;
  const bool is_encoded = names.empty() || !absl::EndsWith(names[0], ".bin");
  options.end_of_text = config.eos_token_id;
  if (is_encoded) {
    LOCKSTEP_RETURN_IF_ERROR(CheckVocabulary(*tokenizer, config));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string encoded, Encoded(names, tokenizer_name, *tokenizer));
    names = {encoded};
    options.end_of_text = tokenizer->end_of_text();
  }
  Text text = {std::move(tokenizer), nullptr};
  // Only files of 16 bits are told by their contents.
  const auto format =
      is_encoded && text.tokenizer->vocab_size() > 65536 ? data::TokenFormat::kUint32 : data::TokenFormat::kDetect;
  LOCKSTEP_ASSIGN_OR_RETURN(text.blocks, data::TokenDataset::Create({{names, format}}, options));
  const int64_t blocks = text.blocks->size();
  if (blocks < 2) {
    return FlagError("block", block, absl::StrCat("less than half of the text's ", text.blocks->tokens(), " tokens"));
  }
  at::Generator unused = at::globalContext().defaultGenerator(at::kCPU);
  for (const int64_t look : {int64_t{0}, blocks - 1}) {  // another vocabulary mostly shows at once
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(text.blocks->Get(look, unused).status(), "--data does not fit the model; see --model"));
  }
  return text;
}

}  // namespace lockstep::examples
