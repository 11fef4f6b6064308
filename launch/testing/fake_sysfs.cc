#include "lockstep/launch/testing/fake_sysfs.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch::testing {

FakeSysfs::FakeSysfs() : root_(NewFolder()) { root_.pop_back(); }

void FakeSysfs::Write(const std::string& path, const std::string& text) const {
  const std::filesystem::path whole = absl::StrCat(root_, "/", path);
  std::filesystem::create_directories(whole.parent_path());
  std::ofstream(whole, std::ios::binary) << text;
}

void FakeSysfs::AddCpu(int cpu, int node, int socket, const std::string& siblings, const std::string& sharers) {
  const std::string folder = absl::StrCat("sys/devices/system/cpu/cpu", cpu, "/");
  Write(folder + "topology/physical_package_id", absl::StrCat(socket, "\n"));
  Write(folder + "topology/thread_siblings_list", siblings + "\n");
  const auto add_cache = [&](int index, const std::string& level, const std::string& type, const std::string& list) {
    const std::string cache = absl::StrCat(folder, "cache/index", index, "/");
    Write(cache + "level", level + "\n");
    Write(cache + "type", type + "\n");
    Write(cache + "shared_cpu_list", list + "\n");
  };
  if (!sharers.empty()) {
    add_cache(0, "1", "Data", siblings);
    add_cache(1, "1", "Instruction", siblings);
    add_cache(2, "2", "Unified", siblings);
    add_cache(3, "3", "Unified", sharers);
  }
  if (node == kNoNode) return;
  absl::StrAppend(&nodes_[node], nodes_[node].empty() ? "" : ",", cpu);
  Write(absl::StrCat("sys/devices/system/node/node", node, "/cpulist"), nodes_[node] + "\n");
}

void FakeSysfs::AddPciDevice(const std::string& address, const std::string& vendor, const std::string& device_class,
                             int node) {
  const std::string folder = absl::StrCat("sys/bus/pci/devices/", address, "/");
  Write(folder + "vendor", vendor + "\n");
  Write(folder + "class", device_class + "\n");
  Write(folder + "numa_node", absl::StrCat(node, "\n"));
}

}  // namespace lockstep::launch::testing
