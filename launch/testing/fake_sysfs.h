// A folder laid out as the files of a host in /sys, /proc and /dev, for tests of what reads the topology.

#ifndef LOCKSTEP_LAUNCH_TESTING_FAKE_SYSFS_H_
#define LOCKSTEP_LAUNCH_TESTING_FAKE_SYSFS_H_

#include <map>
#include <string>

namespace lockstep::launch::testing {

class FakeSysfs {
 public:
  static constexpr int kNoNode = -1;

  FakeSysfs();

  // The folder, without a slash at its end.
  const std::string& root() const { return root_; }

  // Adds an online CPU. `siblings` lists the CPUs of its core, and `sharers` the CPUs that share its last-level cache;
  // "" if /sys has no caches.
  void AddCpu(int cpu, int node, int socket, const std::string& siblings, const std::string& sharers);

  void AddPciDevice(const std::string& address, const std::string& vendor, const std::string& device_class, int node);

  // Writes a file below the folder.
  void Write(const std::string& path, const std::string& text) const;

 private:
  std::string root_;
  std::map<int, std::string> nodes_;  // the list of each node's CPUs
};

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_TESTING_FAKE_SYSFS_H_
