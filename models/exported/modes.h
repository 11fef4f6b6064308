// The training flags of a program's nodes: what the export recorded, and how train() and eval() change them.

#ifndef LOCKSTEP_MODELS_EXPORTED_MODES_H_
#define LOCKSTEP_MODELS_EXPORTED_MODES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/models/exported/code.h"
#include "lockstep/models/exported/program.h"

namespace lockstep::models::exported {

// Fills the modes of the instructions of `code`, the program's whole graph. Returns true if the program was exported in
// training mode, false if in evaluation mode, and nullopt if no node tells.
std::optional<bool> FindModes(const Program& program, Code& code);

// FailedPrecondition: a node was exported for the other mode alone; the error names it.
absl::Status CheckMode(const Code& code, std::optional<bool> exported, bool train);

// Sets the flags. In the mode of the export they are the export's.
void SetMode(Code& code, std::optional<bool> exported, bool train);

// Returns the names of the layers whose batch normalisation the program computes, each once; of a layer without running
// statistics, or in a body, the place of its node.
std::vector<std::string> BatchNormsOf(const ExportedGraph& program);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_MODES_H_
