// The place of a node in one start of all ranks of a job.

#ifndef LOCKSTEP_LAUNCH_JOB_NODE_START_H_
#define LOCKSTEP_LAUNCH_JOB_NODE_START_H_

#include <stdint.h>

#include <string>

namespace lockstep::launch {

struct NodeStart {
  int64_t number = 1;  // from 1
  int restarts = 0;    // the starts so far because one before had failed
  int node_rank = 0;
  int nnodes = 1;
  int first_rank = 0;  // rank of the node's first process
  int world_size = 1;
  std::string master_addr;  // "": 127.0.0.1
  int master_port = 0;      // 0: a free one is chosen
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_NODE_START_H_
