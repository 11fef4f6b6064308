// The English text that Debian has: 4 MB, without a licence, in every Debian's main section.

#ifndef LOCKSTEP_DATA_TOKENS_KING_JAMES_BIBLE_H_
#define LOCKSTEP_DATA_TOKENS_KING_JAMES_BIBLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::data {

// The 66 books of the King James Bible, in ASCII: a line for each verse, without its number, and an empty line between
// chapters. `program` is installed by Debian's package bible-kjv, and reads the text in bible-kjv-text. Takes 0.1 s.
// NotFound: the program or its text is missing; the error says how to install it.
absl::StatusOr<std::vector<std::string>> KingJamesBible(const std::string& program = "/usr/bin/bible");

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_KING_JAMES_BIBLE_H_
