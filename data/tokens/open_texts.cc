#include "lockstep/data/tokens/open_texts.h"

#include <ATen/Context.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/encode_text_files.h"
#include "lockstep/data/tokens/king_james_bible.h"
#include "lockstep/data/tokens/token_file_writer.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr auto kLongestUnused = std::chrono::hours(30 * 24);

// Files by their names, and by what changes when a file does.
struct Fingerprint {
  absl::Status Add(const std::string& file) {
    if (absl::EndsWith(file, ".gz"))
      return absl::InvalidArgumentError(absl::StrCat(file, ": is compressed: gunzip it first"));
    std::error_code error;
    const uintmax_t size = fs::file_size(file, error);
    if (error) return absl::NotFoundError(absl::StrCat(file, ": ", error.message()));
    absl::StrAppend(&names, "\n", fs::absolute(file).string());
    absl::StrAppend(&stamps, "\n", size, " ", fs::last_write_time(file).time_since_epoch().count());
    return absl::OkStatus();
  }

  std::string names, stamps;
};

std::string Hash(const std::string& text) {
  return absl::StrCat(absl::Hex(std::hash<std::string>()(text), absl::kZeroPad16));
}

fs::path CacheFolder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  return (cache ? fs::path(cache) : fs::path(home ? home : "/tmp") / ".cache") / "lockstep" / "tokens";
}

absl::Status EncodeBible(const Tokenizer& tokenizer, const std::string& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> books, KingJamesBible());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, TokenFileWriter::Create(file, tokenizer.vocab_size()));
  for (const std::string& book : books) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> tokens, tokenizer.Encode(book));
    tokens.push_back(tokenizer.end_of_text());
    LOCKSTEP_RETURN_IF_ERROR(writer->Write(tokens));
  }
  return writer->Commit();
}

// Returns the file of the texts' tokens, which it writes unless it is there. The time of a file is its last use.
absl::StatusOr<std::string> Encoded(const std::vector<std::string>& texts, const std::string& tokenizer_name,
                                    const Tokenizer& tokenizer) {
  Fingerprint found;
  for (const std::string& text : texts) LOCKSTEP_RETURN_IF_ERROR(found.Add(text));
  if (fs::exists(tokenizer_name)) LOCKSTEP_RETURN_IF_ERROR(found.Add(tokenizer_name));
  const fs::path folder = CacheFolder();
  const std::string key = absl::StrCat(Hash(absl::StrCat(tokenizer_name, found.names)), "-");
  const std::string file = folder / absl::StrCat(key, Hash(found.stamps), ".bin");
  const fs::file_time_type now = fs::file_time_type::clock::now();
  std::error_code error;
  if (fs::exists(file)) {
    fs::last_write_time(file, now, error);
    return file;
  }
  fs::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder.string(), ": ", error.message()));
  LOCKSTEP_RETURN_IF_ERROR(texts.empty() ? EncodeBible(tokenizer, file)
                                         : EncodeTextFiles(tokenizer, texts, file).status());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const fs::path& other = entry.path();
    const bool is_older = absl::StartsWith(other.filename().string(), key) && other != file;
    if (is_older || fs::last_write_time(other, error) < now - kLongestUnused) fs::remove(other, error);
  }
  return file;
}

// As TokenFileWriter chooses.
TokenFormat FormatOf(const Tokenizer& tokenizer) {
  return tokenizer.vocab_size() > 65536 ? TokenFormat::kUint32 : TokenFormat::kUint16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenDataset>> OpenTexts(const std::vector<std::string>& files,
                                                        const std::string& tokenizer_name, const Tokenizer& tokenizer,
                                                        TokenDatasetOptions options) {
  TokenSource source = {files};
  if (files.empty() || !absl::EndsWith(files[0], ".bin")) {
    if (options.vocabulary > 0 && tokenizer.vocab_size() > options.vocabulary)
      return absl::InvalidArgumentError(absl::StrCat("tokenizer \"", tokenizer_name, "\" has ", tokenizer.vocab_size(),
                                                     " tokens, expected at most ", options.vocabulary,
                                                     ", the size of the vocabulary"));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string encoded, Encoded(files, tokenizer_name, tokenizer));
    source = {{encoded}, FormatOf(tokenizer)};
    options.end_of_text = tokenizer.end_of_text();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto blocks, TokenDataset::Create({source}, options));
  at::Generator unused = at::globalContext().defaultGenerator(at::kCPU);
  for (const int64_t look : {int64_t{0}, blocks->size() - 1}) {
    if (blocks->size() > 0) LOCKSTEP_RETURN_IF_ERROR(blocks->Get(look, unused).status());
  }
  return blocks;
}

}  // namespace lockstep::data
