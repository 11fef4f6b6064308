// Damaged copies of a record of a program: its JSON stays JSON, and says something else. Pure.

#ifndef LOCKSTEP_MODELS_EXPORTED_FUZZ_DAMAGES_H_
#define LOCKSTEP_MODELS_EXPORTED_FUZZ_DAMAGES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::models::exported::testing {

struct Damage {
  std::string name;  // such as "an unknown operator at /graph_module/graph/nodes/3/target"
  std::string text;
};

// Returns `count` damaged copies of a JSON text, each with one change that `seed` draws: a value of another type, a
// missing or repeated part, a hostile size, an unknown operator, a value that is used before it is computed, or nesting
// that is too deep. No change turns a program into another one: it is refused, or is the same program.
std::vector<Damage> DamagedJson(absl::string_view text, int count, unsigned seed);

}  // namespace lockstep::models::exported::testing

#endif  // LOCKSTEP_MODELS_EXPORTED_FUZZ_DAMAGES_H_
