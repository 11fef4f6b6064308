#include "lockstep/examples/imagenet/meters.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::examples::imagenet {
namespace {

constexpr int64_t kColumns = 4;

// The share of `count` images in percent.
double Percent(int64_t count, const BatchResult& result) {
  return 100 / static_cast<double>(result.images) * static_cast<double>(count);
}

std::string Format(AverageMeter::Form form, double value) {
  if (form == AverageMeter::Form::kLoss) return absl::StrFormat("%.4e", value);
  return form == AverageMeter::Form::kSeconds ? absl::StrFormat("%6.3f", value) : absl::StrFormat("%6.2f", value);
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

PassMeters::PassMeters(int64_t parts) : sums_(at::zeros({parts, kColumns}, at::kDouble)) {}

void PassMeters::Count(int64_t virtual_rank, const BatchResult& result) {
  double* const row = sums_.data_ptr<double>() + virtual_rank * kColumns;
  const auto images = static_cast<double>(result.images);
  row[0] += images;
  row[1] += result.loss * images;
  row[2] += Percent(result.in_top1, result) * images;
  row[3] += Percent(result.in_top5, result) * images;
}

void PassMeters::Update(const BatchResult& result, absl::Duration waited) {
  const absl::Time now = absl::Now();
  time.Update(absl::ToDoubleSeconds(now - last_end_));
  data.Update(absl::ToDoubleSeconds(waited - waited_));
  last_end_ = now;
  waited_ = waited;
  loss.Update(result.loss, result.images);
  top1.Update(Percent(result.in_top1, result), result.images);
  top5.Update(Percent(result.in_top5, result), result.images);
}

at::Tensor PassMeters::TakeSums() { return std::exchange(sums_, at::zeros_like(sums_)); }

void PassMeters::Show(const at::Tensor& sums) {
  double totals[kColumns] = {};
  const auto* const values = static_cast<const double*>(sums.const_data_ptr());
  for (int64_t i = 0; i < sums.numel(); ++i) totals[i % kColumns] += values[i];
  const auto images = static_cast<int64_t>(totals[0]);
  loss.Reset(totals[1], images);
  top1.Reset(totals[2], images);
  top5.Reset(totals[3], images);
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
