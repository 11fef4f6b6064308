#include "lockstep/launch/flags/devices.h"

#include <fstream>

#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

TEST(NvidiaDevices, AreTheFilesWithANumber) {
  const std::string folder = testing::NewFolder();
  EXPECT_EQ(NvidiaDevices(folder, nullptr), 0);
  EXPECT_EQ(NvidiaDevices(folder, "0,1"), 0);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidia", "nvidiactl", "nvidia-uvm", "nvidia1x", "null"}) {
    std::ofstream(folder + name).put('x');
  }
  EXPECT_EQ(NvidiaDevices(folder, nullptr), 3);
  EXPECT_EQ(NvidiaDevices(folder + "missing", nullptr), 0);
}

TEST(NvidiaDevices, AreThoseThatAreVisible) {
  const std::string folder = testing::NewFolder();
  std::ofstream(folder + "nvidia0").put('x');
  EXPECT_EQ(NvidiaDevices(folder, ""), 0);
  EXPECT_EQ(NvidiaDevices(folder, "0"), 1);
  EXPECT_EQ(NvidiaDevices(folder, "MIG-a, MIG-b"), 2);
  EXPECT_EQ(NvidiaDevices(folder, "0,-1,1"), 1);
}

}  // namespace
}  // namespace lockstep::launch
