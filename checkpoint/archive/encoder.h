// A Value as torch.save's pickle and the storages it refers to.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_ENCODER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_ENCODER_H_

#include <c10/core/Storage.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::archive {

// Values and pickles nest no deeper.
inline constexpr int kMaxDepth = 500;

struct EncodedValue {
  std::string pickle;
  // Number i is record data/i.
  std::vector<c10::Storage> storages;
};

absl::StatusOr<EncodedValue> Encode(const Value& value);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_ENCODER_H_
