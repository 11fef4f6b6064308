// Meters, which keep the last value and the average of a number.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_METERS_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_METERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::examples::imagenet {

// Keeps one number. Values are weighted by the number of images.
class AverageMeter {
 public:
  // How ToString() prints the number: as Python's example prints times, losses and percentages.
  enum class Form { kSeconds, kLoss, kPercent };
  AverageMeter(absl::string_view name, Form form) : name_(name), form_(form) {}

  void Update(double value, int64_t count = 1);

  // Replaces the sum of the weighted values, and of their weights. The last value stays.
  void Reset(double sum, int64_t count);

  double value() const { return value_; }
  // 0 if there was no value.
  double average() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double sum() const { return sum_; }
  int64_t count() const { return count_; }

  // "Loss 6.9512e+00 (6.9766e+00)": the last value, and the average.
  std::string ToString() const;

 private:
  std::string name_;
  Form form_;
  double value_ = 0, sum_ = 0;
  int64_t count_ = 0;
};

// "Epoch: [0][ 10/5005]\tTime  0.212 ( 0.220)\t...".
std::string ProgressLine(absl::string_view prefix, int64_t batch, int64_t batches,
                         const std::vector<const AverageMeter*>& meters);

// The number of rows of float [n, classes] `logits` whose int64 [n] `target` is among their k largest values. If k
// exceeds the number of classes, it is that number. NaN is never among the largest.
int64_t CountInTopK(const at::Tensor& logits, const at::Tensor& target, int64_t k);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_METERS_H_
