// Runs a whole program: its inputs, its graph, its outputs and the buffers that it changes.

#ifndef LOCKSTEP_MODELS_EXPORTED_INTERPRETER_H_
#define LOCKSTEP_MODELS_EXPORTED_INTERPRETER_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/models/exported/code.h"
#include "lockstep/models/exported/input_checks.h"
#include "lockstep/models/exported/program.h"

namespace lockstep::models::exported {

class Interpreter {
 public:
  // Returns the errors of Compile().
  static absl::StatusOr<std::unique_ptr<Interpreter>> Create(std::shared_ptr<const Program> program);

  // See ExportedModuleImpl::Call.
  c10::IValue Call(std::vector<c10::IValue> inputs, std::vector<std::pair<std::string, c10::IValue>> named);

  // True in training mode, or if the program has no modes.
  bool is_training() const { return exported_mode_.value_or(true); }
  // FailedPrecondition: see ExportedModuleImpl::train.
  absl::Status SetTraining(bool on);

 private:
  Interpreter(std::shared_ptr<const Program> program, Code code);
  void FindAssignments();
  // The results of a run, without the values that are written to buffers and inputs, which this writes.
  std::vector<c10::IValue> TakeResults(std::vector<c10::IValue> outputs, const std::vector<c10::IValue>& leaves) const;

  const std::shared_ptr<const Program> program_;
  const InputChecks checks_;
  Code code_;
  std::optional<bool> exported_mode_;
  // The inputs of the graph that are buffers to which the program assigns.
  std::vector<bool> assigned_;
  // The number of each input of the graph among the user's inputs; -1 for a tensor of the program.
  std::vector<int32_t> leaves_;
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_INTERPRETER_H_
