#ifndef LOCKSTEP_DDP_GRADIENT_ALLOCATOR_H_
#define LOCKSTEP_DDP_GRADIENT_ALLOCATOR_H_

namespace lockstep::ddp {

// Lets gradients on the CPU be born in the buckets: replaces c10's CPU allocator, for the whole process and for good,
// by one that hands out a parameter's place in its bucket when a backward under DistributedDataParallel asks for as
// many bytes, and otherwise asks the allocator that was there. The operator that computes a gradient then writes it
// where it is reduced: it is not copied, and its memory is not given back and faulted in again in every step.
//
//   int main(int argc, char** argv) {
//     lockstep::ddp::InstallGradientAllocator();
//
// To be called at the beginning of main, before other threads run; later calls do nothing. A program's choice, not a
// library's: it is global. Results are the same bits with and without it. What else asks for as many bytes meanwhile
// may be given such a place too; the bucket moves to other memory should that still be in use when the gradient comes.
// Places of less than 64 KiB are left alone: copying those costs less than looking for them.
void InstallGradientAllocator();

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_GRADIENT_ALLOCATOR_H_
