// A program of torch.export with its tensors, as Load reads it and ExportedModule runs it.

#ifndef LOCKSTEP_MODELS_EXPORTED_PROGRAM_H_
#define LOCKSTEP_MODELS_EXPORTED_PROGRAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/pt2/tensors.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// The contents of a file besides the graph, to write it again.
struct SavedRecords {
  std::string name;  // the program's
  // All other records of the program, without the archive's name.
  std::vector<std::pair<std::string, std::string>> records;
  // A tensor is undefined if the graph has it as an input.
  std::vector<checkpoint::pt2::StoredTensor> weights;
  std::vector<checkpoint::pt2::StoredTensor> constants;
};

struct Program {
  std::shared_ptr<const ExportedGraph> graph;
  std::shared_ptr<const SavedRecords> saved;
  // The parameter, buffer or constant of each input of the graph; undefined for the user's inputs. Inputs that Python
  // tied are one tensor.
  std::vector<at::Tensor> tensors;
  // If set, the program creates its tensors there, and not where the export did.
  std::optional<c10::Device> device;
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_PROGRAM_H_
