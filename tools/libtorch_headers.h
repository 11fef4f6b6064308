// The headers on which LibTorch's users spend most of their compile time.
#include <ATen/ATen.h>

// Clang also keeps the template instantiations. g++ compiles them in each source, for 2 s with these: more headers
// would cost it more than they save.
#ifdef __clang__
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "abseil_headers.h"
#endif
