// The order in which Python sorts file names.

#ifndef LOCKSTEP_DATA_INTERNAL_PYTHON_ORDER_H_
#define LOCKSTEP_DATA_INTERNAL_PYTHON_ORDER_H_

#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

// Returns whether the name `a` sorts before `b` among Python's strings: by the code points of UTF-8. A byte b that is
// not part of UTF-8 counts as U+DC00 + b (PEP 383, surrogateescape). Without such bytes this is the order of bytes.
bool PythonLess(absl::string_view a, absl::string_view b);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_PYTHON_ORDER_H_
