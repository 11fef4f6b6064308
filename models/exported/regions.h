// The higher-order operators: control flow and regions with another mode, whose bodies are graphs.

#ifndef LOCKSTEP_MODELS_EXPORTED_REGIONS_H_
#define LOCKSTEP_MODELS_EXPORTED_REGIONS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/models/exported/code.h"

namespace lockstep::models::exported {

// The implementation of a node's target, such as "torch.ops.higher_order.cond". `instruction` has its bodies, and its
// operands without them, with lists flattened. `list_sizes`: the lengths of these lists. Unimplemented: the operator is
// not supported. DataLoss: the bodies or operands are not the operator's.
absl::StatusOr<Region> FindRegion(absl::string_view target, const std::vector<int64_t>& list_sizes,
                                  const Instruction& instruction);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_REGIONS_H_
