// Loads a folder of images, augmented for training, and prints a JSON line an epoch. Part of tools/bench:compare; by
// itself:
//
//   ./bazelw run //tools/bench:image_loader -- --data=FOLDER [--workers=2] [--batch_size=64] [--epochs=3]
//
// --scaled_decode is ImageDatasetOptions'.

#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/data/image_dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_transform.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/transforms.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "nlohmann/json.hpp"

DEFINE_string(data, "", "a folder with one folder of images a class");
DEFINE_int32(workers, 2, "threads that load");
DEFINE_int64(batch_size, 64, "images a batch");
DEFINE_int64(prefetch, 2, "batches ahead");
DEFINE_int64(epochs, 3, "how often, each measured by itself");
DEFINE_bool(scaled_decode, false, "decode large images smaller: faster, and other pixels");

namespace lockstep {
namespace {

absl::StatusOr<data::ImageDataset> MakeDataset() {
  LOCKSTEP_ASSIGN_OR_RETURN(data::ImageFolder folder, data::ImageFolder::Create(FLAGS_data));
  data::TensorFormat format;
  format.mean = data::kImageNetMean;
  format.std = data::kImageNetStd;
  LOCKSTEP_ASSIGN_OR_RETURN(
      data::ImageTransform transform,
      data::ImageTransform::Create({data::RandomResizedCrop(224), data::RandomHorizontalFlip()}, format));
  data::ImageDatasetOptions options;
  options.scaled_decode = FLAGS_scaled_decode;
  return data::ImageDataset::Create(std::move(folder), std::move(transform), options);
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

absl::StatusOr<nlohmann::json> Epoch(data::Loader& loader, int64_t epoch, Progress& progress) {
  std::vector<int64_t> resident;
  int64_t images = 0;
  const absl::Time start = absl::Now();
  LOCKSTEP_RETURN_IF_ERROR(loader.Start(epoch));
  while (true) {
    progress.Doing(absl::StrCat("epoch ", epoch + 1, " of ", FLAGS_epochs, ", ", images, " images"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto batch, loader.Next());
    if (!batch) break;
    images += batch->data.size(0);
    resident.push_back(ResidentBytes());
  }
  return nlohmann::json(
      {{"seconds", absl::ToDoubleSeconds(absl::Now() - start)}, {"images", images}, {"rss_bytes_by_batch", resident}});
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"workers", static_cast<double>(FLAGS_workers), 0, 4096},
                                        {"batch_size", static_cast<double>(FLAGS_batch_size), 1, 1e6},
                                        {"prefetch", static_cast<double>(FLAGS_prefetch), 1, 1e6},
                                        {"epochs", static_cast<double>(FLAGS_epochs), 1, 1e6}}));
  Progress progress("image_loader");
  progress.Doing(absl::StrCat("listing the images of ", FLAGS_data));
  LOCKSTEP_ASSIGN_OR_RETURN(const data::ImageDataset dataset, MakeDataset());
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(dataset.size(), {}));
  data::LoaderOptions options;
  options.batch_size = FLAGS_batch_size;
  options.num_workers = FLAGS_workers;
  options.prefetch = FLAGS_prefetch;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, data::Loader::Create(&dataset, &sampler, options));
  for (int64_t epoch = 0; epoch < FLAGS_epochs; ++epoch) {
    sampler.set_epoch(epoch);
    LOCKSTEP_ASSIGN_OR_RETURN(const nlohmann::json line, Epoch(*loader, epoch, progress));
    std::cout << line << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Loads a folder of images, augmented for training, and prints a JSON line an
epoch.

  image_loader --data=FOLDER --workers=2 --batch_size=64 --epochs=3
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (status.ok()) return 0;
  std::cerr << "image_loader: " << status.message() << "\n";
  return 1;
}
