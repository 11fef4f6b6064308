// A program of torch.export with its tensors, as Load reads it and ExportedModule runs it.

#ifndef LOCKSTEP_MODELS_EXPORTED_PROGRAM_H_
#define LOCKSTEP_MODELS_EXPORTED_PROGRAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// A weight or constant of a file.
struct SavedTensor {
  Payload payload;
  int64_t record_bytes = 0;
  // Its value, if the graph does not have it as an input.
  at::Tensor unused = {};
};

// The contents of a file besides the graph, to write it again.
struct SavedRecords {
  std::string name;  // the program's
  // All other records of the program, in the order of the file, without the archive's name.
  std::vector<std::pair<std::string, std::string>> records;
  std::vector<SavedTensor> weights;
  std::vector<SavedTensor> constants;
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
