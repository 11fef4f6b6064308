// The buckets' memory. Writes gradients into it, and makes it the gradients.

#ifndef LOCKSTEP_DDP_INTERNAL_GRADIENT_BUCKETS_H_
#define LOCKSTEP_DDP_INTERNAL_GRADIENT_BUCKETS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/bucket_plan.h"
#include "lockstep/ddp/internal/slot.h"
#include "lockstep/ddp/internal/slot_requests.h"
#include "lockstep/ddp/internal/used_parameters.h"

namespace lockstep::ddp::internal {

// A parameter whose gradient is reduced.
struct ReducedParameter {
  std::string name;
  at::Tensor tensor;
  bool sparse = false;   // its gradients are sparse
  bool delayed = false;  // it is reduced with the other delayed parameters, after ReducerOptions::delay_until
};

// Gradients that are reduced together.
struct Bucket {
  int index = 0;
  std::vector<int> parameters;
  bool sparse = false;  // it has one parameter, whose gradient is sparse
  at::Tensor buffer;    // dense: the memory of all slots; sparse: this rank's gradient, undefined between backwards
  GradBucket for_hook;  // for the communication hook; a sparse bucket has only the names
};

// The gradient of an embedding of which no row was used. Like the gradient of some rows it has one sparse dimension.
at::Tensor EmptySparse(const at::Tensor& parameter);

struct GradientBucketsOptions {
  int rank = 0;                                 // for errors
  std::optional<c10::ScalarType> reduce_dtype;  // of the buffers; not set: the parameters' dtype
  bool gradient_as_bucket_view = false;
  bool request_slots = false;  // operators may compute gradients in the slots: see SlotRequests
  // Returns whether another wrapper averages the parameter in this backward. Then its slot holds zeros, and its
  // gradient is left as it is. If not set, no wrapper does.
  std::function<bool(int parameter)> averaged_elsewhere;
  // Allocates the buffers of parameters on the CPU.
  std::function<absl::StatusOr<at::Tensor>(int64_t numel, at::ScalarType dtype)> allocate;
};

// A bucket is a buffer with a slot for each of its parameters; a bucket with a sparse gradient has no slots.
//
// A gradient's way: Fill() writes it into its slot when it arrives. ReplaceGradients() makes the slots of a full bucket
// the parameters' gradients, so that a gradient that nobody else holds is not copied back, and its memory is free for
// the rest of backward. The buffer is then reduced in place. Deliver() makes sure that the parameters' gradients are
// the averages. When a slot is written again, whoever still holds its last gradient keeps the numbers in other memory
// (see Slot).
//
// Errors are thrown as StatusError.
class GradientBuckets {
 public:
  // `parameters` and `used` are borrowed.
  GradientBuckets(const std::vector<ReducedParameter>* parameters, const UsedParameters* used,
                  GradientBucketsOptions options);

  // Allocates the buckets of `layout`, which replace the previous ones. Gradients that live in the old buckets move to
  // the new ones, or out if somebody else holds them. Not in a backward.
  void Build(const Layout& layout);

  int size() const { return static_cast<int>(buckets_.size()); }
  const Bucket& operator[](int bucket) const { return buckets_[static_cast<size_t>(bucket)]; }

  // Around each backward that is reduced, in its thread.
  void BeginBackward();
  void EndBackward();

  // Writes the parameter's gradient, or zeros if it has none, into its slot, divided by `divisor`. `arriving` is the
  // tensor that autograd holds of this gradient; undefined if no gradient has just arrived. Once per backward.
  // InvalidArgument if a dense gradient came for a sparse bucket.
  void Fill(int parameter, const at::Tensor& arriving, double divisor);

  // The gradient of a parameter of a sparse bucket, divided; without elements if it has none. InvalidArgument: as
  // above.
  at::Tensor SparseGradient(int parameter, double divisor) const;

  // Makes the slots the gradients of the bucket's parameters, except for gradients that somebody else holds.
  // `arriving`: as above.
  void ReplaceGradients(int bucket, const at::Tensor& arriving);

  // Makes `result` the gradients. A parameter that no rank used keeps the gradient that it had.
  void Deliver(int bucket, const at::Tensor& result);

  // Fills the bucket with zeros. Gradients in it that somebody still holds move to other memory.
  void FillWithZeros(int bucket);

  // Copies `result` into the bucket's buffer, if it is dense and not already there.
  void TakeResult(int bucket, const at::Tensor& result);

  // The bucket's parameters whose part of `content` is not finite; dense content must be in the buffer.
  std::vector<int> NonFinite(int bucket, const at::Tensor& content) const;

 private:
  // A parameter's place in the buckets.
  struct Place {
    int bucket = 0;
    at::ScalarType dtype = at::kFloat;  // of the gradient after backward
    Slot slot;
    std::shared_ptr<SlotMemory> memory;  // null: gradients are not computed in the slot
    int request = 0;                     // the number in SlotRequests that the gradient had; 0: not known
    int mismatches = 0;                  // how often something else was allocated in the slot
    bool filled = false;                 // in this backward
  };

  Bucket MakeBucket(const std::vector<int>& parameters);
  void AllocateSlots(Bucket& bucket);
  std::vector<int> MoveGradientsOut();
  void MoveGradientsIn(const std::vector<int>& parameters);
  bool AveragedElsewhere(int parameter) const {
    return options_.averaged_elsewhere && options_.averaged_elsewhere(parameter);
  }
  void FillSlot(int parameter, const at::Tensor& arriving, double divisor);
  void FillSlotWithZeros(int parameter);
  void ExpectRequests(const std::vector<int>& parameters);
  bool ComputedInSlot(int parameter, const at::Tensor& arriving);
  void MoveToOtherMemory(Bucket& bucket);
  void DeliverParameter(int parameter);

  const std::vector<ReducedParameter>& parameters_;
  const UsedParameters& used_;
  const GradientBucketsOptions options_;
  const std::shared_ptr<SlotRequests> requests_;  // null: slots are not requested
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // of each parameter
  int layouts_ = 0;            // how often buckets were built
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_GRADIENT_BUCKETS_H_
