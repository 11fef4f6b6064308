// The system's sentencepiece behind an interface without Abseil's: its headers make absl::string_view another name of
// std::string_view, which Abseil does not on all systems.

#ifndef LOCKSTEP_DATA_TOKENS_INTERNAL_SENTENCEPIECE_MODEL_H_
#define LOCKSTEP_DATA_TOKENS_INTERNAL_SENTENCEPIECE_MODEL_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace lockstep::data::internal {

// All functions that return an error return sentencepiece's message, or "" where there is none.
class SentencePieceModel {
 public:
  SentencePieceModel();
  ~SentencePieceModel();

  // Call it first, once. `bytes` are a model file's.
  std::string Parse(std::string_view bytes);

  int size() const;
  int end_of_text() const;  // -1: the model has none

  std::string Encode(std::string_view text, std::vector<int>& tokens) const;
  // Requires: tokens are in [0, size()).
  std::string Decode(const std::vector<int>& tokens, std::string& text) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

// Learns a model with the flags of `spm_train` from what `next` writes into its argument, until that returns false.
// Writes the bytes of a model file into `model`.
std::string TrainSentencePiece(const std::unordered_map<std::string, std::string>& flags,
                               const std::function<bool(std::string&)>& next, std::string& model);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_TOKENS_INTERNAL_SENTENCEPIECE_MODEL_H_
