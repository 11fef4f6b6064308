// Looks for parameters that differ between ranks, and for numbers that are not finite.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_PARAMETER_CHECK_H_
#define LOCKSTEP_ELASTIC_INTERNAL_PARAMETER_CHECK_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/vote.h"

namespace lockstep::elastic::internal {

// Compares the parameters of all ranks by their hashes. nullopt if they are equal. All ranks must call it, with
// parameters of the same names. One message of 8 bytes from each rank, and if they differ, 8 bytes for each parameter.
absl::StatusOr<std::optional<Vote>> CompareParameters(comm::ProcessGroup& group,
                                                      const std::vector<NamedTensor>& parameters);

// Watches the gradients that this rank's backward computes, before they are averaged with the ones of other ranks.
class GradientWatch {
 public:
  // The parameters must outlive the object, which is a hook of each.
  explicit GradientWatch(std::vector<NamedTensor> parameters);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // "the gradient of net: first.weight is not finite", of the first parameter for which that was so; "" if there is
  // none.
  std::string found() const;

 private:
  const std::vector<NamedTensor> parameters_;
  std::vector<unsigned> hooks_;
  size_t first_;  // the number of parameters: none
};

struct NonFinite {
  int rank = 0;      // the lowest that has made it, or has it; -1: all have it, and nobody has seen which one made it
  std::string what;  // "the gradient of net: first.weight is not finite"
};

// A gradient or parameter that is not finite on any rank. `made_here`: what this rank's GradientWatch has found; "" if
// there is none. All ranks must call it, and get the same result.
absl::StatusOr<std::optional<NonFinite>> FindNonFinite(comm::ProcessGroup& group,
                                                       const std::vector<NamedTensor>& parameters,
                                                       const std::string& made_here);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_PARAMETER_CHECK_H_
