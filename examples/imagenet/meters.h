// Meters of numbers, and of passes over images.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_METERS_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_METERS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lockstep::examples::imagenet {

// The result of a batch on this rank.
struct BatchResult {
  double loss = 0;  // mean over its images
  int64_t images = 0;
  int64_t in_top1 = 0;
  int64_t in_top5 = 0;
};

// Keeps the last value and the average of one number. Values are weighted by the number of images.
class AverageMeter {
 public:
  // How ToString() prints the number: as Python's example prints times, losses and percentages.
  enum class Form { kSeconds, kLoss, kPercent };
  AverageMeter(absl::string_view name, Form form) : name_(name), form_(form) {}

  void Update(double value, int64_t count = 1) {
    value_ = value;
    sum_ += value * static_cast<double>(count);
    count_ += count;
  }

  // Replaces the sum of the weighted values, and of their weights. The last value stays.
  void Reset(double sum, int64_t count) {
    sum_ = sum;
    count_ = count;
  }

  double value() const { return value_; }
  // 0 if there was no value.
  double average() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double sum() const { return sum_; }
  int64_t count() const { return count_; }

  // "Loss 6.9512e+00 (6.9766e+00)": the last value, and the average.
  std::string ToString() const { return absl::StrCat(name_, " ", Format(value_), " (", Format(average()), ")"); }

 private:
  std::string Format(double value) const {
    if (form_ == Form::kLoss) return absl::StrFormat("%.4e", value);
    return form_ == Form::kSeconds ? absl::StrFormat("%6.3f", value) : absl::StrFormat("%6.2f", value);
  }

  std::string name_;
  Form form_;
  double value_ = 0, sum_ = 0;
  int64_t count_ = 0;
};

// Meters of a pass, on one rank and over all ranks. The time runs from construction.
class PassMeters {
 public:
  AverageMeter time{"Time", AverageMeter::Form::kSeconds};  // time of a batch
  AverageMeter data{"Data", AverageMeter::Form::kSeconds};  // part of it spent waiting for images
  // Until Show() these have the batches of Update().
  AverageMeter loss{"Loss", AverageMeter::Form::kLoss};
  AverageMeter top1{"Acc@1", AverageMeter::Form::kPercent};
  AverageMeter top5{"Acc@5", AverageMeter::Form::kPercent};

  // `parts`: the number of virtual ranks, or of ranks without them.
  explicit PassMeters(int64_t parts) : sums_(at::zeros({parts, kColumns}, at::kDouble)) {}

  // Counts a batch of one of this rank's virtual ranks for TakeSums().
  void Count(int64_t virtual_rank, const BatchResult& result) {
    double* const row = sums_.data_ptr<double>() + virtual_rank * kColumns;
    const auto images = static_cast<double>(result.images);
    row[0] += images;
    row[1] += result.loss * images;
    row[2] += Percent(result.in_top1, result) * images;
    row[3] += Percent(result.in_top5, result) * images;
  }

  // Ends a batch, and shows `result`. `waited` is the total time that the pass has waited for images so far.
  void Update(const BatchResult& result, absl::Duration waited) {
    const absl::Time now = absl::Now();
    time.Update(absl::ToDoubleSeconds(now - std::exchange(last_end_, now)));
    data.Update(absl::ToDoubleSeconds(waited - std::exchange(waited_, waited)));
    loss.Update(result.loss, result.images);
    top1.Update(Percent(result.in_top1, result), result.images);
    top5.Update(Percent(result.in_top5, result), result.images);
  }

  // The counts since the last call. Float64 [virtual ranks, 4]: the number of images and the sums of the last three
  // meters, with zeros in the rows of other ranks. So the sum over all ranks has the rows of all virtual ranks, and
  // with --virtual-ranks the same bits on any number of ranks.
  at::Tensor TakeSums() { return std::exchange(sums_, at::zeros_like(sums_)); }

  // Images per second of `shares` shares of the images that are as fast as the one that the meters show.
  double ImagesPerSecond(int64_t shares) const {
    return time.sum() == 0 ? 0 : static_cast<double>(loss.count() * shares) / time.sum();
  }
  // The share of the time that was spent waiting for images.
  double DataShare() const { return time.sum() == 0 ? 0 : data.sum() / time.sum(); }

  // Makes the last three meters cover `sums`, whose rows are added up in their order.
  void Show(const at::Tensor& sums) {
    double totals[kColumns] = {};
    const auto* const values = static_cast<const double*>(sums.const_data_ptr());
    for (int64_t i = 0; i < sums.numel(); ++i) totals[i % kColumns] += values[i];
    const auto images = static_cast<int64_t>(totals[0]);
    loss.Reset(totals[1], images);
    top1.Reset(totals[2], images);
    top5.Reset(totals[3], images);
  }

 private:
  static constexpr int64_t kColumns = 4;

  // The share of `count` images in percent.
  static double Percent(int64_t count, const BatchResult& result) {
    return 100 / static_cast<double>(result.images) * static_cast<double>(count);
  }

  absl::Time last_end_ = absl::Now();
  absl::Duration waited_;
  at::Tensor sums_;  // for TakeSums()
};

// "Epoch: [0][ 10/5005]\tTime  0.212 ( 0.220)\t...".
inline std::string ProgressLine(absl::string_view prefix, int64_t batch, int64_t batches,
                                const std::vector<const AverageMeter*>& meters) {
  const std::string all = absl::StrCat(batches);
  std::string line = absl::StrFormat("%s[%*d/%s]", prefix, all.size(), batch, all);
  for (const AverageMeter* meter : meters) absl::StrAppend(&line, "\t", meter->ToString());
  return line;
}

// The number of rows of float [n, classes] `logits` whose int64 [n] `target` is among their k largest values. If k
// exceeds the number of classes, it is that number. NaN is never among the largest.
inline int64_t CountInTopK(const at::Tensor& logits, const at::Tensor& target, int64_t k) {
  const at::Tensor best = std::get<1>(logits.nan_to_num(-INFINITY).topk(std::min(k, logits.size(1)), /*dim=*/1));
  return best.eq(target.unsqueeze(1)).sum().item<int64_t>();
}

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_METERS_H_
