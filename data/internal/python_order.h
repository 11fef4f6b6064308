// The order in which Python sorts file names.

#ifndef LOCKSTEP_DATA_INTERNAL_PYTHON_ORDER_H_
#define LOCKSTEP_DATA_INTERNAL_PYTHON_ORDER_H_

#include "absl/strings/string_view.h"

namespace lockstep::data {

// Whether the name `a` sorts before `b` among Python's strings: by code points of UTF-8, a byte b that is none being
// U+DC00 + b (PEP 383, surrogateescape). Without such bytes it is the order of bytes.
bool PythonLess(absl::string_view a, absl::string_view b);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_PYTHON_ORDER_H_
