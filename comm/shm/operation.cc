#include "lockstep/comm/shm/operation.h"

namespace lockstep::comm::shm {

const char* NameOf(Kind kind) {
  constexpr const char* kNames[] = {"barrier", "broadcast",      "all_reduce", "reduce",   "all_gather", "gather",
                                    "scatter", "reduce_scatter", "all_to_all", "tree_sum", "send",       "recv"};
  const auto index = static_cast<size_t>(kind);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "unknown call";
}

}  // namespace lockstep::comm::shm
