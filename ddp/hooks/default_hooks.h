// All-reduces of gradients: plain, or in 16 bits.

#ifndef LOCKSTEP_DDP_HOOKS_DEFAULT_HOOKS_H_
#define LOCKSTEP_DDP_HOOKS_DEFAULT_HOOKS_H_

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::hooks {

// Each function makes a hook for one DistributedDataParallel; `group`, the one that was wrapped with, must outlive it.
// Every rank must use the same hook. The arithmetic is that of torch.distributed.algorithms.ddp_comm_hooks, operation
// by operation, so over the same backend the gradients are the same bits as with Python.
//
//   ddp::CommunicationHook hook = ddp::hooks::Bf16Compress(group.get());
//   ddp::CommunicationHook both = ddp::hooks::Fp16CompressWrapper(*ddp::hooks::PowerSgd(group.get(), {}));
//
// They work in place: the future's tensor is bucket.buffer. An error of the all-reduce is the future's error.

// What DDP does without a hook: the average. Divides by the number of ranks, then sums, so that sums in 16 bits do not
// overflow.
CommunicationHook AllReduce(comm::ProcessGroup* group);

// The average in half precision: half the bytes of float. Casts, divides, sums, and casts back into the bucket.
// Values above 65504 become infinite and those below 6e-8 zero, so gradients may need scaling. A bucket of complex
// numbers is InvalidArgument.
CommunicationHook Fp16Compress(comm::ProcessGroup* group);

// The same in bfloat16: float's range with 8 bits of precision.
CommunicationHook Bf16Compress(comm::ProcessGroup* group);

// Gives `hook` the bucket in half precision, and casts what it returns back: Fp16CompressWrapper(AllReduce(group)) is
// Fp16Compress(group).
CommunicationHook Fp16CompressWrapper(CommunicationHook hook);

// The same in bfloat16.
CommunicationHook Bf16CompressWrapper(CommunicationHook hook);

// Exchanges nothing: each rank keeps its own gradients, undivided, and the parameters drift apart. To measure what
// communication costs, and to look at the gradients of one rank.
CommunicationHook Noop();

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_DEFAULT_HOOKS_H_
