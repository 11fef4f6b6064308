#include "lockstep/dp/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::dp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<c10::Device> Gpus(int count) {
  std::vector<c10::Device> gpus;
  for (int i = 0; i < count; ++i) gpus.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
  return gpus;
}

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(ImbalanceWarning, IsEmptyForDevicesThatAreAlike) {
  EXPECT_EQ(ImbalanceWarning(Gpus(2), {{80 * kGiB, 132}, {80 * kGiB, 132}}), "");
  EXPECT_EQ(ImbalanceWarning(Gpus(2), {{80 * kGiB, 132}, {60 * kGiB, 99}}), "");
  EXPECT_EQ(ImbalanceWarning({}, {}), "");
}

TEST(ImbalanceWarning, NamesTheDeviceWithLittleMemory) {
  EXPECT_THAT(ImbalanceWarning(Gpus(3), {{80 * kGiB, 132}, {80 * kGiB, 132}, {59 * kGiB, 132}}),
              AllOf(HasSubstr("cuda:2 has less than 75% of the memory of cuda:"), HasSubstr("leave cuda:2 out")));
}

TEST(ImbalanceWarning, NamesTheDeviceWithFewMultiprocessors) {
  EXPECT_THAT(ImbalanceWarning(Gpus(2), {{80 * kGiB, 98}, {80 * kGiB, 132}}),
              HasSubstr("cuda:0 has less than 75% of the multiprocessors of cuda:1 (98 against 132)"));
}

}  // namespace
}  // namespace lockstep::dp
