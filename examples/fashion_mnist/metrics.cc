#include "lockstep/examples/fashion_mnist/metrics.h"

#include <ATen/ops/zeros.h>
#include <torch/data/dataloader.h>
#include <torch/utils.h>

#include <vector>

#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/torch_sampler.h"

namespace lockstep::examples {

absl::StatusOr<double> MeanLoss(const at::Tensor& losses, comm::ProcessGroup* group) {
  LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(losses));
  const at::Tensor sums = losses.sum(0);
  return (sums[0] / sums[1]).item<double>();
}

absl::StatusOr<double> TestAccuracy(Net& net, const data::FashionMnist& test, int parts, comm::ProcessGroup* group) {
  const torch::NoGradGuard no_grad;
  const std::vector<int> bounds = comm::EvenBounds(parts, group->size());
  const at::Tensor correct = at::zeros({1}, at::kDouble);
  for (int part = bounds[group->rank()]; part < bounds[group->rank() + 1]; ++part) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::EvaluationSampler::Create(test.size(), {parts, part}));
    const auto loader = torch::data::make_data_loader(data::TorchBatchDataset(test), sampler::TorchSampler(sampler),
                                                      /*batch_size=*/1000);
    for (const auto& batch : *loader) correct.add_(net(Normalized(batch.data)).argmax(1).eq(batch.target).sum());
  }
  LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(correct));
  return correct.item<double>() / static_cast<double>(test.size());
}

std::string EpochRow(int64_t epoch, double loss, double accuracy, int64_t images, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time), speed = static_cast<double>(images) / seconds;
  return absl::StrFormat("%5d   %10.4f   %13.4f   %9.0f   %7.1f", epoch + 1, loss, accuracy, speed, seconds);
}

std::string ResultLine(double accuracy, int64_t epochs) {
  return absl::StrFormat("done: test accuracy %.4f after %d epochs", accuracy, epochs);
}

}  // namespace lockstep::examples
