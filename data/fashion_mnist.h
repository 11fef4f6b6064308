// Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017, arXiv:1708.07747): 60000 training and 10000 test images of clothes in
// ten classes.

#ifndef LOCKSTEP_DATA_FASHION_MNIST_H_
#define LOCKSTEP_DATA_FASHION_MNIST_H_

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data {

// The whole dataset in memory, and batches of it ready to train on.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto train, FashionMnist::Load(directory, FashionMnist::Split::kTrain));
//   auto loader = torch::data::make_data_loader(train.Stacked(), sampler, 64);
//   for (torch::data::Example<>& batch : *loader) Train(batch.data, batch.target);
//
// It is a dataset as torch::data::datasets::MNIST is one, so `train.map(Normalize<>(...)).map(Stack<>())` works too, at
// the price of two small tensors and a copy for each image: 12 times the time of Stacked(), which makes the batch in
// one go and takes no map().
//
// Copies share the images, and are cheap, for a loader's workers too. Everything but assignment may be called by
// several threads at once.
class FashionMnist : public torch::data::datasets::Dataset<FashionMnist> {
 public:
  enum class Split { kTrain, kTest };

  // Where Debian's package dataset-fashion-mnist puts the files.
  static constexpr char kDebianDirectory[] = "/usr/share/datasets/fashion-mnist";

  static constexpr int64_t kRows = 28;
  static constexpr int64_t kColumns = 28;
  static constexpr int64_t kClasses = 10;

  // Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte, or the same with .gz, from `directory`. Any number of images
  // will do, so that a test can bring its own. Blocks for the 0.25 s that inflating 60000 images takes.
  //
  // Errors name the file. NotFound: neither form of a file is there. InvalidArgument: images are not 28 x 28, there are
  // none, there are not as many labels as images, or a label is not in [0, 10). Else what ReadIdx() returns.
  static absl::StatusOr<FashionMnist> Load(absl::string_view directory, Split split);

  // uint8 [n, 28, 28]; 0 is the background. Shared with every copy: not to be written to.
  const at::Tensor& images() const { return images_; }
  // int64 [n], in [0, 10).
  const at::Tensor& labels() const { return labels_; }

  // The images and labels at `indices`, in their order: float32 [b, 1, 28, 28] in [0, 1], bit-equal to what
  // torchvision's ToTensor makes of each image (float(value) / 255), and int64 [b]. New tensors, on the CPU. Throws
  // c10::IndexError where an index is not in [0, n).
  torch::data::Example<> Batch(at::ArrayRef<int64_t> indices) const;

  // This dataset for a loader whose batches are those of Batch().
  class StackedDataset;
  StackedDataset Stacked() const;

  // One image, float32 [1, 28, 28], and its label, int64 []; else as Batch().
  torch::data::Example<> get(size_t index) override;
  std::optional<size_t> size() const override;

 private:
  FashionMnist(at::Tensor images, at::Tensor labels) : images_(std::move(images)), labels_(std::move(labels)) {}

  template <typename Index>
  torch::data::Example<> Gather(at::ArrayRef<Index> indices) const;

  at::Tensor images_;
  at::Tensor labels_;
};

class FashionMnist::StackedDataset
    : public torch::data::datasets::BatchDataset<FashionMnist::StackedDataset, torch::data::Example<>> {
 public:
  torch::data::Example<> get_batch(at::ArrayRef<size_t> indices) override;
  std::optional<size_t> size() const override { return dataset_.size(); }

 private:
  friend class FashionMnist;
  explicit StackedDataset(FashionMnist dataset) : dataset_(std::move(dataset)) {}

  FashionMnist dataset_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_FASHION_MNIST_H_
