#include "lockstep/comm/internal/call.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm::internal {
namespace {

std::string Peer(const Call& call) {
  if (call.kind != Call::Kind::kPointToPoint) return "";
  const std::string tag = call.tag == 0 ? "" : absl::StrCat(" with tag ", call.tag);
  const absl::string_view way = absl::string_view(call.operation) == "send" ? " to" : " from";
  return absl::StrCat(way, call.from_any ? " any rank" : absl::StrCat(" rank ", call.peer), tag);
}

}  // namespace

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return absl::StrCat(c10::toString(tensor.scalar_type()), " [", absl::StrJoin(tensor.sizes(), ", "), "] on ",
                      tensor.device().str());
}

std::string Id(const Call& call) { return absl::StrCat(call.operation, " #", call.sequence); }

std::string Describe(const Call& call) {
  return absl::StrCat(Id(call), Peer(call), call.has_tensor ? " of " + Describe(call.tensor) : "");
}

}  // namespace lockstep::comm::internal
