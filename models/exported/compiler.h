// Makes a graph ready to run: finds the operators, prepares their arguments, and finds the last use of each value.

#ifndef LOCKSTEP_MODELS_EXPORTED_COMPILER_H_
#define LOCKSTEP_MODELS_EXPORTED_COMPILER_H_

#include <c10/core/Device.h>

#include <optional>

#include "absl/status/statusor.h"
#include "lockstep/models/exported/code.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// The code refers to the nodes of `graph`. With `device`, each device that the graph names becomes this one. Errors name
// the node: Unimplemented: its operator is not registered in this process, or is a higher-order one that is not
// supported. DataLoss: its arguments or results are not the operator's.
absl::StatusOr<Code> Compile(const Graph& graph, std::optional<c10::Device> device);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_COMPILER_H_
