// Communication hooks that all-reduce gradients, in their dtype or in 16 bits.

#ifndef LOCKSTEP_DDP_HOOKS_DEFAULT_HOOKS_H_
#define LOCKSTEP_DDP_HOOKS_DEFAULT_HOOKS_H_

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::hooks {

// Each function creates a hook for one DistributedDataParallel. `group` must be the group with which it was wrapped,
// and must outlive the hook. Every rank must use the same hook. The arithmetic equals that of
// torch.distributed.algorithms.ddp_comm_hooks, operation by operation, so over the same backend the gradients have the
// same bits as in Python.
//
//   ddp::CommunicationHook hook = ddp::hooks::Bf16Compress(group.get());
//   ddp::CommunicationHook both = ddp::hooks::Fp16CompressWrapper(*ddp::hooks::PowerSgd(group.get(), {}));
//
// The hooks work in place: the future's tensor is bucket.buffer. An error of the all-reduce is the future's error.

// Computes the average, as DDP does without a hook. Divides by the number of ranks before it sums, so that sums in 16
// bits do not overflow.
CommunicationHook AllReduce(comm::ProcessGroup* group);

// Computes the average in half precision, with half the bytes of float. Casts, divides, sums, and casts back into the
// bucket. Values above 65504 become infinite and values below 6e-8 become zero, so gradients may need scaling.
// InvalidArgument: the bucket has complex numbers.
CommunicationHook Fp16Compress(comm::ProcessGroup* group);

// Computes the average in bfloat16 as Fp16Compress() does in half: bfloat16 has float's range with 8 bits of precision.
CommunicationHook Bf16Compress(comm::ProcessGroup* group);

// Passes the bucket to `hook` in half precision and casts its result back. Fp16CompressWrapper(AllReduce(group)) equals
// Fp16Compress(group).
CommunicationHook Fp16CompressWrapper(CommunicationHook hook);

// Passes the bucket to `hook` in bfloat16 and casts its result back.
CommunicationHook Bf16CompressWrapper(CommunicationHook hook);

// Sends nothing: each rank keeps its own gradients, undivided, and the parameters diverge. Use it to measure the cost
// of communication, or to inspect the gradients of one rank.
CommunicationHook Noop();

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_DEFAULT_HOOKS_H_
