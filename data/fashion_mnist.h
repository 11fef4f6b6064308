// Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017, arXiv:1708.07747): 60000 training and 10000 test images of clothes in
// ten classes.

#ifndef LOCKSTEP_DATA_FASHION_MNIST_H_
#define LOCKSTEP_DATA_FASHION_MNIST_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"

namespace lockstep::data {

// Holds the whole dataset in memory and returns batches ready to train on.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto train, FashionMnist::Load(directory, FashionMnist::Split::kTrain));
//   while (const auto indices = sampler.next(64)) {
//     const data::Example batch = train.Batch(std::vector<int64_t>(indices->begin(), indices->end()));
//     Train(batch.data, batch.target);
//   }
//
// data::Loader takes it too, as it takes any Dataset. For LibTorch's own DataLoader, `TorchBatchDataset(train)`
// (torch_dataset.h) creates a batch at once, like Batch(). `TorchDataset(&train).map(Normalize<>(...)).map(Stack<>())`
// works as with torch::data::datasets::MNIST. It creates two small tensors and a copy for each image, which takes 12
// times as long.
//
// Copies share the images and are cheap, also for the workers of a loader. Several threads may call everything except
// assignment at once.
class FashionMnist : public Dataset {
 public:
  enum class Split { kTrain, kTest };

  // The directory in which Debian's package dataset-fashion-mnist installs the files.
  static constexpr char kDebianDirectory[] = "/usr/share/datasets/fashion-mnist";

  static constexpr int64_t kRows = 28;
  static constexpr int64_t kColumns = 28;
  static constexpr int64_t kClasses = 10;

  // Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte, or the same with .gz, from `directory`. The files may hold any
  // number of images, for example few for a test. Blocks for the 0.25 s that inflating 60000 images takes.
  //
  // Errors name the file. NotFound: neither form of a file exists. InvalidArgument: images are not 28 x 28, the file
  // has no images, the numbers of labels and images differ, or a label is not in [0, 10). Other errors come from
  // ReadIdx().
  static absl::StatusOr<FashionMnist> Load(absl::string_view directory, Split split);

  // uint8 [n, 28, 28]; 0 is the background. Shared by all copies: do not write to it.
  const at::Tensor& images() const { return images_; }
  // int64 [n], in [0, 10).
  const at::Tensor& labels() const { return labels_; }

  // The images and labels at `indices`, in that order: float32 [b, 1, 28, 28] in [0, 1], and int64 [b]. The images
  // equal the output of torchvision's ToTensor bit for bit (float(value) / 255). The tensors are new and on the CPU.
  // Throws c10::IndexError if an index is not in [0, n).
  Example Batch(at::ArrayRef<int64_t> indices) const;

  int64_t size() const override { return labels_.size(0); }

  // One image, float32 [1, 28, 28], and its label, int64 []. Otherwise like Batch(). Draws nothing from `random`.
  // OutOfRange: index is not in [0, n).
  absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const override;
  absl::Status GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const override;

 private:
  FashionMnist(at::Tensor images, at::Tensor labels) : images_(std::move(images)), labels_(std::move(labels)) {}

  absl::Status CheckIndex(int64_t index) const;
  // Writes one image and its label. Requires: index is in [0, n).
  void Write(int64_t index, float* data, int64_t* target) const;

  at::Tensor images_;
  at::Tensor labels_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_FASHION_MNIST_H_
