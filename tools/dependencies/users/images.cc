#include "lockstep/data/image_dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/sampler/distributed_sampler.h"

int main(int, char** argv) {
  using namespace lockstep::data;
  auto folder = ImageFolder::Create(argv[1]);
  auto transform = ImageTransform::Create({Resize(256), CenterCrop(224)});
  if (!folder.ok() || !transform.ok()) return 1;
  const auto images = ImageDataset::Create(*std::move(folder), *std::move(transform));
  if (!images.ok()) return 1;
  auto sampler = lockstep::sampler::DistributedSampler::Create(images->size(), {});
  if (!sampler.ok()) return 1;
  const auto loader = Loader::Create(&*images, &*sampler, {});
  return loader.ok() && (*loader)->Start(/*epoch=*/0).ok() && (*loader)->Next().ok() ? 0 : 1;
}
