#include "lockstep/data/tokens/internal/sentencepiece_model.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <exception>

namespace lockstep::data::internal {
namespace {

using ::sentencepiece::util::Status;

// Without the place in sentencepiece's sources: "Internal: x.cc(7) [(a) == (b)] Size too high" becomes "Size too high".
std::string MessageOf(const Status& status) {
  if (status.ok()) return "";
  const std::string message = status.error_message();
  if (message.find("ParseFromArray") != std::string::npos) return "they cannot be parsed";
  const size_t place = message.rfind("] ");
  return place == std::string::npos || place + 2 == message.size() ? message + "." : message.substr(place + 2);
}

// Messages on stderr, such as a page about each training, are of no use: errors are returned. Only the trainer has a flag
// for that, of the whole process. This one has no text, so it ends at once.
void BeQuiet() { static const Status ended = sentencepiece::SentencePieceTrainer::Train({{"minloglevel", "3"}}); }

// Some damaged models make the library under sentencepiece throw.
template <typename Function>
std::string Guarded(const Function& function) {
  try {
    return MessageOf(function());
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }
  bool done() const override { return !more_; }
  void Next() override { more_ = next_(sentence_); }
  const std::string& value() const override { return sentence_; }
  Status status() const override { return Status(); }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string sentence_;
  bool more_ = true;
};

}  // namespace

SentencePieceModel::SentencePieceModel() : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  BeQuiet();
}

SentencePieceModel::~SentencePieceModel() = default;

std::string SentencePieceModel::Parse(std::string_view bytes) {
  return Guarded([&] { return processor_->LoadFromSerializedProto(bytes); });
}

int SentencePieceModel::size() const { return processor_->GetPieceSize(); }

int SentencePieceModel::end_of_text() const { return processor_->eos_id(); }

std::string SentencePieceModel::Encode(std::string_view text, std::vector<int>& tokens) const {
  return Guarded([&] { return processor_->Encode(text, &tokens); });
}

std::string SentencePieceModel::Decode(const std::vector<int>& tokens, std::string& text) const {
  return Guarded([&] { return processor_->Decode(tokens, &text); });
}

std::string TrainSentencePiece(const std::unordered_map<std::string, std::string>& flags,
                               const std::function<bool(std::string&)>& next, std::string& model) {
  BeQuiet();
  Sentences sentences(next);
  return Guarded([&] { return sentencepiece::SentencePieceTrainer::Train(flags, &sentences, &model); });
}

}  // namespace lockstep::data::internal
