// Parses the program of a .pt2 archive, trusting nothing. Pure.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const ExportedGraph graph, ParseProgram(json));

#ifndef LOCKSTEP_MODELS_EXPORTED_GRAPH_PARSER_H_
#define LOCKSTEP_MODELS_EXPORTED_GRAPH_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// Parses models/NAME.json. DataLoss: the text is not JSON, or not a program: a field is missing or has another type, a
// value is used before a node computes it, or the signature does not fit the graph. Unimplemented: the schema has
// another major version, or the program uses something that is not supported. Errors name the node.
absl::StatusOr<ExportedGraph> ParseProgram(absl::string_view json);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_GRAPH_PARSER_H_
