// Nested inputs and outputs (Python's pytree) as flat lists, and back.

#ifndef LOCKSTEP_MODELS_EXPORTED_STRUCTURE_H_
#define LOCKSTEP_MODELS_EXPORTED_STRUCTURE_H_

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// The leaves of a call's inputs, in the order of the program's user inputs. InvalidArgument: an input is missing,
// unknown, given twice or has another structure; the error names it.
absl::StatusOr<std::vector<c10::IValue>> FlattenInputs(const ExportedGraph& program, std::vector<c10::IValue> inputs,
                                                       std::vector<std::pair<std::string, c10::IValue>> named);

// The reverse: takes leaves from `leaf` on, and advances it. A tuple, list or dict of Python is one here; a list of
// tensors only is a tensor list.
c10::IValue Unflatten(const TreeSpec& spec, const c10::IValue*& leaf);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_STRUCTURE_H_
