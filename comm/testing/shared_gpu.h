// Several ranks on one GPU.

#ifndef LOCKSTEP_COMM_TESTING_SHARED_GPU_H_
#define LOCKSTEP_COMM_TESTING_SHARED_GPU_H_

#include <stdlib.h>

#include "absl/strings/str_cat.h"

namespace lockstep::comm::testing {

// Each rank calls it before its first group, with another id. NCCL refuses two ranks on one GPU of one host (from 2.31
// on NCCL_MULTI_RANK_GPU_ENABLE lets it). If each rank has a different host name, the ranks use sockets instead, which
// work within a host too.
inline void ShareTheGpu(int id) {
  setenv("NCCL_HOSTID", absl::StrCat("rank ", id).c_str(), /*overwrite=*/1);
  setenv("NCCL_NET", "Socket", /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/1);
}

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_SHARED_GPU_H_
