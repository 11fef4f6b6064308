#ifndef LOCKSTEP_DDP_GRADIENT_ALLOCATOR_H_
#define LOCKSTEP_DDP_GRADIENT_ALLOCATOR_H_

namespace lockstep::ddp {

// Makes CPU operators write gradients directly into DDP's buckets. Replaces c10's CPU allocator for the whole process,
// permanently. If a backward under DistributedDataParallel requests as many bytes as a parameter has, the new allocator
// returns the parameter's place in its bucket. All other requests go to the previous allocator. So gradients are not
// copied, and their memory is not freed and faulted in again in every step.
//
//   int main(int argc, char** argv) {
//     lockstep::ddp::InstallGradientAllocator();
//
// Call it at the start of main, before other threads run. Later calls do nothing. It is global, so programs should call
// it, not libraries. Results have the same bits with and without it. Another tensor with as many bytes may be allocated
// in such a place too. If it is still alive when the gradient arrives, the bucket moves to other memory. Gradients of
// less than 64 KiB are excluded, since copying them is cheaper than finding their place.
void InstallGradientAllocator();

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_GRADIENT_ALLOCATOR_H_
