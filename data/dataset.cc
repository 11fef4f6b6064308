#include "lockstep/data/dataset.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data {
namespace {

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " ", c10::str(tensor.sizes()));
}

absl::Status Copy(absl::string_view what, int64_t index, const at::Tensor& from, at::Tensor& to) {
  if (from.sizes() != to.sizes() || from.scalar_type() != to.scalar_type()) {
    return absl::InvalidArgumentError(absl::StrCat("example ", index, ": expected its ", what, " to be ", Describe(to),
                                                   " like the other examples of the batch, found ", Describe(from)));
  }
  return TorchStatus(absl::StrCat("example ", index), [&] { to.copy_(from); });
}

}  // namespace

absl::Status Dataset::GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const Example example, Get(index, random));
  LOCKSTEP_RETURN_IF_ERROR(Copy("data", index, example.data, data));
  return Copy("target", index, example.target, target);
}

}  // namespace lockstep::data
