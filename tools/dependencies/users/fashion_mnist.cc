#include "lockstep/data/fashion_mnist.h"

int main(int, char** argv) {
  using lockstep::data::FashionMnist;
  const auto images = FashionMnist::Load(argv[1], FashionMnist::Split::kTest);
  return images.ok() && images->size() == 10000 ? 0 : 1;
}
