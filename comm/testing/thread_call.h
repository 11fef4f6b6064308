#ifndef LOCKSTEP_COMM_TESTING_THREAD_CALL_H_
#define LOCKSTEP_COMM_TESTING_THREAD_CALL_H_

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace lockstep::comm::testing {

// One rank's call of a collective. Tensors are detached, since a collective may write to leaves that require gradients.
struct ThreadCall {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  int64_t root = -1;                // -1 if there is none
  at::Tensor subject;               // has the shape that all ranks must pass; undefined if shapes may differ
  std::vector<at::Tensor> inputs;   // one tensor, several to be reduced, or one for each rank
  std::vector<at::Tensor> outputs;  // unless the call works in place
};

// "ALLREDUCE of Float [2]".
std::string Describe(const ThreadCall& call);

// Throws c10::NotImplementedError, naming operation and dtype, for a reduction that CarryOut() cannot do.
void CheckReduction(const ThreadCall& call);

// Executes the collective for all ranks, reducing in rank order. `calls` is by rank. Throws c10::ValueError, naming
// both, if two ranks made different calls.
void CarryOut(std::vector<ThreadCall>& calls);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_THREAD_CALL_H_
