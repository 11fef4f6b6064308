// Checks a call's inputs against the shapes that a program was exported for.

#ifndef LOCKSTEP_MODELS_EXPORTED_INPUT_CHECKS_H_
#define LOCKSTEP_MODELS_EXPORTED_INPUT_CHECKS_H_

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

class InputChecks {
 public:
  explicit InputChecks(const ExportedGraph& program);

  // `leaves`: the user inputs in the order of the graph. InvalidArgument: one is not a tensor where the program has a
  // tensor, has another rank or a size that is fixed or out of its range, or two sizes that must be equal are not; or a
  // number differs from the constant of the export. The error names the input. As in Python, sizes of 0 and 1 pass where
  // the range begins at 2, and expressions of several symbols are not checked.
  absl::Status Check(const std::vector<c10::IValue>& leaves) const;

 private:
  struct Size {
    int64_t fixed = -1;
    int32_t symbol = -1;  // an index into ranges_
  };
  struct Input {
    std::string name;
    bool is_tensor = false;
    std::vector<Size> sizes = {};
    Argument constant = {};
  };

  absl::Status CheckTensor(const Input& input, const c10::IValue& leaf, std::vector<int64_t>& found) const;
  absl::Status CheckRange(const Input& input, size_t dimension, int64_t size, const RangeConstraint& range) const;

  std::vector<Input> inputs_;
  std::vector<RangeConstraint> ranges_;
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_INPUT_CHECKS_H_
