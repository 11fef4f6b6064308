// The Python functions on numbers that programs with symbolic shapes call, such as operator.floordiv. Results are
// Python's: integers stay integers, and division rounds down.

#ifndef LOCKSTEP_MODELS_EXPORTED_NUMBER_FUNCTIONS_H_
#define LOCKSTEP_MODELS_EXPORTED_NUMBER_FUNCTIONS_H_

#include "absl/strings/string_view.h"
#include "lockstep/models/exported/code.h"

namespace lockstep::models::exported {

// The function of a node's target, such as "_operator.floordiv", and the number of its operands; null if there is none.
// It throws c10::Error if an operand is no number, at a division by zero and at an overflow.
struct NumberCall {
  NumberFunction function = nullptr;
  int operands = 0;
};
NumberCall FindNumberFunction(absl::string_view target);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_NUMBER_FUNCTIONS_H_
