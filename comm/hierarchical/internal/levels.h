#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_LEVELS_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_LEVELS_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "lockstep/comm/hierarchical/internal/links.h"

namespace lockstep::comm::hierarchical::internal {

// The parts that one rank needs for collectives over several hosts. There are two backends within the host, since one
// piece of a tensor may be in the last phase where another is in the first.
struct Levels {
  c10::intrusive_ptr<c10d::Backend> inward;   // among the ranks of the host, for the first phase
  c10::intrusive_ptr<c10d::Backend> outward;  // among the ranks of the host, for the last phase
  std::unique_ptr<Links> links;               // among the column; null on a rank that is in none
  std::vector<std::vector<int>> hosts;        // the ranks of each host, in the order of the column
  bool even = true;                           // every host has as many ranks
  int size = 1;                               // of the whole group
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_LEVELS_H_
