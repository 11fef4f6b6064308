#ifndef LOCKSTEP_COMM_INTERNAL_CALL_H_
#define LOCKSTEP_COMM_INTERNAL_CALL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::comm::internal {

// One call on a group, as named in its errors, its traces and Work::id(). Text is built only when it is needed.
struct Call {
  enum class Kind : char {
    kCollective,  // every rank makes it, so one sequence number serves all
    kPointToPoint
  };

  const char* operation = "";  // a literal, as PyTorch spells it: "all_reduce"
  Kind kind = Kind::kCollective;
  bool has_tensor = false;     // false for a barrier
  bool shapes_differ = false;  // rightly, from rank to rank
  bool from_any = false;       // a receive from any rank
  int peer = -1;               // of another send or receive
  int tag = 0;
  int64_t sequence = -1;
  at::Tensor tensor;  // the one that messages describe

  static Call Of(const char* operation) {
    Call call;
    call.operation = operation;
    return call;
  }
  static Call Of(const char* operation, const at::Tensor& tensor) {
    Call call;
    call.operation = operation;
    call.has_tensor = true;
    call.tensor = tensor;
    return call;
  }
};

// "Float [3] on cpu" or "an undefined tensor".
std::string Describe(const at::Tensor& tensor);

// "all_reduce #3".
std::string Id(const Call& call);

// "all_reduce #3 of Float [3] on cpu".
std::string Describe(const Call& call);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_CALL_H_
