// The check of the part of a sentencepiece model that sentencepiece follows without looking.

#ifndef LOCKSTEP_DATA_TOKENS_INTERNAL_CHARACTER_MAP_H_
#define LOCKSTEP_DATA_TOKENS_INTERNAL_CHARACTER_MAP_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

// DataLoss: a character map in `model`, the bytes of a model file, leads out of itself, which would end the process at
// some text. All else that may be wrong with a model is left to sentencepiece.
absl::Status CheckCharacterMaps(absl::string_view model);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_TOKENS_INTERNAL_CHARACTER_MAP_H_
