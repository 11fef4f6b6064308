// Fashion-MNIST for tests: the real files, and a small part of them.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_TESTING_SMALL_DATA_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_TESTING_SMALL_DATA_H_

#include <cstdint>
#include <string>

namespace lockstep::examples::testing {

// The folder of the real files. The test's `data` needs "//third_party:fashion_mnist".
std::string RealData();

// Writes the first `count` images and labels of the real files into `folder`, as plain IDX files. `prefix` is "train"
// or "t10k".
void WriteSubset(const std::string& folder, const std::string& prefix, int64_t count);

// A folder of 2000 training and 301 test images, made once.
const std::string& SmallData();

}  // namespace lockstep::examples::testing

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_TESTING_SMALL_DATA_H_
