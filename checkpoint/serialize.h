// Converts a Value to and from the bytes of a .pt file in memory, for example to send it to another rank or to store it
// in a database.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(std::string bytes, Serialize(value));
//   LOCKSTEP_RETURN_IF_ERROR(group->BroadcastBytes(bytes, /*root=*/0));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value received, Deserialize(bytes));

#ifndef LOCKSTEP_CHECKPOINT_SERIALIZE_H_
#define LOCKSTEP_CHECKPOINT_SERIALIZE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Returns the bytes that torch.save writes to an io.BytesIO. Returns the errors of Save that the value causes.
absl::StatusOr<std::string> Serialize(const Value& value);

// Returns the value that torch.load reads from an io.BytesIO. The value does not refer to `bytes`. Returns the errors
// of Load.
absl::StatusOr<Value> Deserialize(absl::string_view bytes, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SERIALIZE_H_
