// A custom dataset: your class, read ahead by data::Loader's threads, in the order of a sampler.
//
//   bazel run //examples/recipes:custom_dataset
//
// Claim: with DistributedSampler the ranks together see each example once in an epoch. With WeightedSampler they see
// the rare class as often as the other one. The batches do not depend on the number of threads. It prints
//
//   custom_dataset: 2 ranks saw each of 1000 examples once; the rare class is 10 % of them, and 48.4 % if weighted

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"
#include "lockstep/data/loader.h"
#include "lockstep/examples/recipes/recipe.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/weighted_sampler.h"

namespace lockstep::examples {
namespace {

constexpr int64_t kSize = 1000;

// Example i is the number i with noise, and its class: 1 for every tenth example, otherwise 0. Threads call Get() at
// once. Take random numbers from `random`, which depends on the epoch and the index only.
class Numbers : public data::Dataset {
 public:
  int64_t size() const override { return kSize; }
  absl::StatusOr<data::Example> Get(int64_t index, at::Generator& random) const override {
    if (index < 0 || index >= kSize) return absl::OutOfRangeError(absl::StrCat("example ", index, " does not exist"));
    return data::Example{index + at::randn({1}, random) / 100, at::full({}, Class(index), at::kLong)};
  }
  static int64_t Class(int64_t index) { return index % 10 == 0; }
};

// One epoch of this rank's examples, in order.
absl::StatusOr<data::Example> Epoch(sampler::Sampler* sampler, int num_workers) {
  const Numbers dataset;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            data::Loader::Create(&dataset, sampler, {.batch_size = 64, .num_workers = num_workers}));
  LOCKSTEP_RETURN_IF_ERROR(loader->Start(/*epoch=*/0));  // in training: sampler.set_epoch(epoch) before
  std::vector<at::Tensor> data, target;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto batch, loader->Next());
    if (!batch) break;
    data.push_back(batch->data);  // [64, 1]; the last batch is shorter
    target.push_back(batch->target);
  }
  return data::Example{at::cat(data), at::cat(target)};
}

// How often all ranks together saw each example, and the share of the rare class.
struct Seen {
  at::Tensor counts;
  double rare = 0;
};

absl::StatusOr<Seen> Count(comm::ProcessGroup& group, const data::Example& epoch) {
  const at::Tensor indices = epoch.data.flatten().round().to(at::kLong);
  const at::Tensor counts = at::zeros({kSize}).index_add_(0, indices, at::ones(indices.sizes()));
  const at::Tensor rare = epoch.target.to(at::kFloat).mean();
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(counts));
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(rare, comm::ReduceOp::kAvg));
  return Seen{counts, rare.item<double>()};
}

absl::Status Run(comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(kSize, {group.size(), group.rank()}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto epoch, Epoch(&sampler, /*num_workers=*/3));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto again, Epoch(&sampler, /*num_workers=*/1));
  LOCKSTEP_ASSIGN_OR_RETURN(const Seen seen, Count(group, epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the least count of an example", seen.counts.min().item<double>(), 1, 1));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the largest count of an example", seen.counts.max().item<double>(), 1, 1));
  const double difference = (epoch.data - again.data).abs().max().item<double>();
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference with one thread", difference, 0, 0));

  std::vector<double> weights;
  for (int64_t i = 0; i < kSize; ++i) weights.push_back(Numbers::Class(i) == 1 ? 9 : 1);
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto weighted, sampler::WeightedSampler::Create(weights, /*num_samples=*/kSize, {group.size(), group.rank()}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto weighted_epoch, Epoch(&weighted, /*num_workers=*/3));
  LOCKSTEP_ASSIGN_OR_RETURN(const Seen weighted_seen, Count(group, weighted_epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the share of the rare class", weighted_seen.rare, 0.45, 0.55));
  Say(group,
      absl::StrCat("custom_dataset: ", group.size(), " ranks saw each of ", kSize, " examples once; the rare class is ",
                   100 * seen.rare, " % of them, and ", 100 * weighted_seen.rare, " % if weighted"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: your own dataset, its loader and two samplers.", /*ranks=*/2, Run);
}
