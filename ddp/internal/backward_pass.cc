#include "lockstep/ddp/internal/backward_pass.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::ddp::internal {

BackwardPass::BackwardPass(int rank, std::vector<std::string> names)
    : rank_(rank), names_(std::move(names)), bucket_of_(names_.size()), ready_(names_.size()) {}

void BackwardPass::SetBuckets(const std::vector<std::vector<int>>& buckets, int ordered) {
  ordered_ = ordered;
  sizes_.clear();
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    sizes_.push_back(static_cast<int>(buckets[bucket].size()));
    for (const int parameter : buckets[bucket]) bucket_of_[parameter] = static_cast<int>(bucket);
  }
  End();
}

void BackwardPass::End() {
  active_ = false;
  std::fill(ready_.begin(), ready_.end(), false);
  pending_ = sizes_;
  started_ = delivered_ = 0;
  delayed_started_ = false;
}

void BackwardPass::MarkStarted(int bucket) {
  if (bucket < ordered_) {
    started_ = bucket + 1;
  } else {
    delayed_started_ = true;
  }
}

absl::Status BackwardPass::MarkReady(int parameter) {
  const int bucket = bucket_of_[parameter];
  if (ready_[parameter] || started(bucket)) return TooLate(parameter);
  ready_[parameter] = true;
  --pending_[bucket];
  return absl::OkStatus();
}

bool BackwardPass::ready(int parameter) const { return ready_[parameter]; }

std::vector<int> BackwardPass::NotReady() const {
  std::vector<int> missing;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (!ready_[i]) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

int BackwardPass::bucket_of(int parameter) const { return bucket_of_[parameter]; }

bool BackwardPass::full(int bucket) const { return pending_[bucket] == 0; }

int BackwardPass::NextToStart() const { return started_ < ordered_ && full(started_) ? started_ : kNone; }

absl::Status BackwardPass::TakeError() { return std::exchange(error_, absl::OkStatus()); }

// It is ready already if the parameter's autograd node ran again, as under checkpointed recomputation.
absl::Status BackwardPass::TooLate(int parameter) const {
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank_, ": parameter ", names_[parameter],
                   bucket_of_[parameter] >= ordered_
                       ? " got its gradient after the parameter that starts its all_reduce"
                       : " got its gradient twice in one backward: recomputation needs Options::static_graph"));
}

absl::Status BackwardPass::NoGradient() const {
  const std::vector<int> missing = NotReady();
  const auto name = [this](std::string* out, int i) { absl::StrAppend(out, names_[i]); };
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank_, ": ", missing.size(), " of ", names_.size(),
      " parameters got no gradient in the last backward, so it was not averaged: ", absl::StrJoin(missing, ", ", name),
      "; each parameter that requires gradients must take part in the loss, or Options::find_unused_parameters be "
      "set"));
}

absl::Status BackwardPass::NotBefore(int parameter, int trigger) const {
  return absl::FailedPreconditionError(absl::StrCat("rank ", rank_, ": parameter ", names_[parameter],
                                                    " had no gradient when the gradient of ", names_[trigger],
                                                    ", which starts its all_reduce, was computed"));
}

}  // namespace lockstep::ddp::internal
