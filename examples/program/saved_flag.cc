#include "lockstep/examples/program/saved_flag.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {

absl::Status CheckSavedFlag(const checkpoint::Value& checkpoint, absl::string_view flag, int64_t value) {
  const std::string key = absl::StrReplaceAll(flag, {{"-", "_"}});
  int64_t saved = 0;
  if (checkpoint.Find(key)) {
    LOCKSTEP_ASSIGN_OR_RETURN(saved, checkpoint::GetInt(checkpoint, key));
  }
  if (value == saved) return absl::OkStatus();
  return FlagError(flag, value, absl::StrCat(saved, ", as in the checkpoint"));
}

}  // namespace lockstep::examples
