#include "lockstep/examples/ranks/alike.h"

#include <ATen/ops/cat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {

at::Tensor Flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().cpu().flatten());
  return at::cat(flat);
}

double MaxDifference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return Flat(a).sub(Flat(b)).abs().max().item<double>();
}

absl::Status CheckAlike(const std::vector<at::Tensor>& parameters, comm::ProcessGroup& group) {
  const at::Tensor mine = Flat(parameters);
  const absl::string_view bytes(static_cast<const char*>(mine.data_ptr()), mine.nbytes());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, group.AllGatherBytes(bytes));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != bytes)
      return absl::InternalError(absl::StrCat("its parameters are other than those of rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::examples
