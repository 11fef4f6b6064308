// The programs of a .pt2 file, as plain values.

#ifndef LOCKSTEP_CHECKPOINT_INSPECT_PROGRAMS_H_
#define LOCKSTEP_CHECKPOINT_INSPECT_PROGRAMS_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::inspect {

// A dict of the programs, by name, each a dict:
//
//   state_dict, constants   the parameters and persistent buffers; the other buffers and constants. On the CPU
//   inputs, outputs         by name, such as "float32 [s77, 28, 28]"; a parameter is "parameter conv.weight"
//   sizes                   by symbol, such as "2 to 64"
//   operators               how often each occurs, by name, also in bodies of control flow
//   torch_version, schema_version
//
// Checks the CRC-32 of every record. DataLoss: the file is damaged, or its JSON is malformed. Unimplemented: the
// schema has another major version than 8. InvalidArgument: a file of another kind, which is named.
absl::StatusOr<Value> ReadPrograms(const file::ByteSource& source);

}  // namespace lockstep::checkpoint::inspect

#endif  // LOCKSTEP_CHECKPOINT_INSPECT_PROGRAMS_H_
