#include "lockstep/checkpoint/inspect/difference.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/inspect/leaves.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::inspect {
namespace {

at::Tensor Doubles(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  return (plain.is_complex() ? at::view_as_real(plain) : plain).to(at::kCPU, at::kDouble);
}

// For tensors of the same dtype and shape. Empty if they are bit-identical.
std::string InElements(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = tensors::Elements(a), right = tensors::Elements(b);
  const int64_t count = left.ne(right).sum().item<int64_t>();
  if (count == 0) return "";
  const std::string many = absl::StrCat(count, " of ", a.numel(), " elements differ");
  // Some dtypes, such as float4_e2m1fn_x2, have no arithmetic.
  const auto largest = TorchStatusOr("", [&] { return Doubles(a).sub(Doubles(b)).abs().max().item<double>(); });
  return largest.ok() ? absl::StrFormat("%s, by %g at most", many, *largest) : many;
}

// Empty if they are the same.
std::string Between(const Value& a, const Value& b) {
  const std::string left = Short(a), right = Short(b);
  if (left != right) return absl::StrCat(left, " / ", right);
  if (a.is_tensor() && b.is_tensor()) return InElements(a.tensor(), b.tensor());
  return Identical(a, b) ? "" : absl::StrCat(left, " differs");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Differences(const Value& a, const Value& b) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Leaf> left, Leaves(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Leaf> right, Leaves(b));
  absl::flat_hash_map<absl::string_view, const Leaf*> others;
  for (const Leaf& leaf : right) others.emplace(leaf.name, &leaf);
  std::vector<std::string> lines;
  for (const Leaf& leaf : left) {
    const auto other = others.find(leaf.name);
    const bool missing = other == others.end();
    const std::string what = missing ? "only in the first" : Between(leaf.value, other->second->value);
    if (!what.empty()) lines.push_back(absl::StrCat(leaf.name, ": ", what));
    if (!missing) others.erase(other);
  }
  for (const Leaf& leaf : right) {
    if (others.contains(leaf.name)) lines.push_back(absl::StrCat(leaf.name, ": only in the second"));
  }
  return lines;
}

}  // namespace lockstep::checkpoint::inspect
