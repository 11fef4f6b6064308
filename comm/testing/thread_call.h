#ifndef LOCKSTEP_COMM_TESTING_THREAD_CALL_H_
#define LOCKSTEP_COMM_TESTING_THREAD_CALL_H_

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace lockstep::comm::testing {

// One rank's call of one collective. Tensors are detached: a collective may write leaves that require gradients.
struct ThreadCall {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  int64_t root = -1;                // where there is one
  at::Tensor subject;               // of the shape that all ranks must give; undefined where they need not agree
  std::vector<at::Tensor> inputs;   // what it gives: one, several to be reduced, or one a rank
  std::vector<at::Tensor> outputs;  // what it gets, where that is not in place
};

// "ALLREDUCE of Float [2]".
std::string Describe(const ThreadCall& call);

// Throws c10::NotImplementedError, naming operation and dtype, for a reduction that CarryOut() cannot do.
void CheckReduction(const ThreadCall& call);

// Does the collective for all ranks, reducing in rank order. `calls` is by rank. Throws c10::ValueError, naming the
// two, where ranks called different things.
void CarryOut(std::vector<ThreadCall>& calls);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_THREAD_CALL_H_
