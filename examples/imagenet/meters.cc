#include "lockstep/examples/imagenet/meters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::examples::imagenet {
namespace {

std::string Format(AverageMeter::Form form, double value) {
  switch (form) {
    case AverageMeter::Form::kSeconds:
      return absl::StrFormat("%6.3f", value);
    case AverageMeter::Form::kLoss:
      return absl::StrFormat("%.4e", value);
    case AverageMeter::Form::kPercent:
      return absl::StrFormat("%6.2f", value);
  }
  return "";
}

}  // namespace

void AverageMeter::Update(double value, int64_t count) {
  value_ = value;
  sum_ += value * static_cast<double>(count);
  count_ += count;
}

void AverageMeter::Reset(double sum, int64_t count) {
  sum_ = sum;
  count_ = count;
}

std::string AverageMeter::ToString() const {
  return absl::StrCat(name_, " ", Format(form_, value_), " (", Format(form_, average()), ")");
}

std::string ProgressLine(absl::string_view prefix, int64_t batch, int64_t batches,
                         const std::vector<const AverageMeter*>& meters) {
  const std::string all = absl::StrCat(batches);
  std::string line = absl::StrFormat("%s[%*d/%s]", prefix, all.size(), batch, all);
  for (const AverageMeter* meter : meters) absl::StrAppend(&line, "\t", meter->ToString());
  return line;
}

int64_t CountInTopK(const at::Tensor& logits, const at::Tensor& target, int64_t k) {
  const at::Tensor best = std::get<1>(logits.nan_to_num(-INFINITY).topk(std::min(k, logits.size(1)), /*dim=*/1));
  return best.eq(target.unsqueeze(1)).sum().item<int64_t>();
}

}  // namespace lockstep::examples::imagenet
