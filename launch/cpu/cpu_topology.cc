#include "lockstep/launch/cpu/cpu_topology.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

constexpr char kNvidia[] = "0x10de", kDisplayClass[] = "0x03";
constexpr size_t kMostCpus = 1 << 20;

// Without white space at its ends; "" if the file cannot be read.
std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::string(absl::StripAsciiWhitespace(text));
}

absl::Status Unexpected(const std::string& path, absl::string_view expected) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has \"", Printable(Contents(path)), "\", expected ", expected));
}

absl::StatusOr<std::set<int>> ReadList(const std::string& path) {
  std::optional<std::set<int>> list = ParseCpuList(Contents(path));
  if (!list) return Unexpected(path, "a list of CPUs");
  return *std::move(list);
}

absl::StatusOr<int> LowestOf(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int> list, ReadList(path));
  if (list.empty()) return Unexpected(path, "a list of CPUs");
  return *list.begin();
}

// The lowest CPU that shares the cache of the highest level that has data; -1 if there is none.
absl::StatusOr<int> LastCache(const std::string& cpu) {
  int highest = 0, lowest_cpu = -1;
  for (const std::string& index : NamesIn(cpu + "/cache")) {
    const std::string cache = absl::StrCat(cpu, "/cache/", index);
    int level;
    const bool has_level = absl::SimpleAtoi(Contents(cache + "/level"), &level);
    if (!has_level || level <= highest || Contents(cache + "/type") == "Instruction") continue;
    LOCKSTEP_ASSIGN_OR_RETURN(lowest_cpu, LowestOf(cache + "/shared_cpu_list"));
    highest = level;
  }
  return lowest_cpu;
}

// {CPU: its NUMA node}.
absl::StatusOr<std::map<int, int>> ReadNodes(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  std::map<int, int> nodes;
  for (const std::string& name : NamesIn(folder)) {
    absl::string_view number = name;
    int node;
    if (!absl::ConsumePrefix(&number, "node") || !absl::SimpleAtoi(number, &node)) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int> cpus, ReadList(absl::StrCat(folder, "/", name, "/cpulist")));
    for (const int cpu : cpus) nodes[cpu] = node;
  }
  if (!nodes.empty()) return nodes;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int> online, ReadList(root + "/sys/devices/system/cpu/online"));
  for (const int cpu : online) nodes[cpu] = 0;
  return nodes;
}

struct Gpu {
  std::string uuid;  // "" if /proc does not say
  int node = 0;
};

// The value after "Key:" in /proc/driver/nvidia/gpus/ADDRESS/information.
std::string Field(absl::string_view information, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(information, '\n')) {
    if (absl::ConsumePrefix(&line, key)) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

// In a container, /sys has the host's GPUs too. The driver's folder in /proc, or else /dev, has the container's.
std::vector<Gpu> Gpus(const std::string& root) {
  const std::string devices = root + "/sys/bus/pci/devices", driver = root + "/proc/driver/nvidia/gpus";
  const bool has_driver = !NamesIn(driver).empty();
  std::vector<Gpu> gpus;
  for (const std::string& address : NamesIn(devices)) {
    const std::string device = absl::StrCat(devices, "/", address);
    if (Contents(device + "/vendor") != kNvidia || !absl::StartsWith(Contents(device + "/class"), kDisplayClass)) {
      continue;
    }
    const std::string information = Contents(absl::StrCat(driver, "/", address, "/information"));
    if (has_driver && information.empty()) continue;
    const std::string minor = Field(information, "Device Minor:");
    if (!minor.empty() && access(absl::StrCat(root, "/dev/nvidia", minor).c_str(), F_OK) != 0) continue;
    Gpu gpu;
    gpu.uuid = Field(information, "GPU UUID:");
    if (!absl::SimpleAtoi(Contents(device + "/numa_node"), &gpu.node) || gpu.node < 0) gpu.node = 0;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

// The GPU that an entry of CUDA_VISIBLE_DEVICES names, by number or by the start of its UUID; null if none.
const Gpu* FindGpu(const std::vector<Gpu>& gpus, absl::string_view entry) {
  int number;
  if (absl::SimpleAtoi(entry, &number)) return number >= 0 && number < gpus.size() ? &gpus[number] : nullptr;
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return absl::StartsWith(gpu.uuid, entry); });
  return found == gpus.end() || entry.empty() ? nullptr : &*found;
}

}  // namespace

std::optional<std::set<int>> ParseCpuList(absl::string_view list) {
  std::set<int> cpus;
  for (const absl::string_view range : absl::StrSplit(absl::StripAsciiWhitespace(list), ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first, last;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last >= kMostCpus) {
      return std::nullopt;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

std::string CpuListOf(const std::set<int>& cpus) {
  std::vector<std::string> ranges;
  for (auto cpu = cpus.begin(); cpu != cpus.end();) {
    const int first = *cpu;
    int last = first;
    while (++cpu != cpus.end() && *cpu == last + 1) last = *cpu;
    ranges.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  return absl::StrJoin(ranges, ",");
}

absl::StatusOr<std::set<int>> AllowedCpus() {
  // The kernel refuses a mask that is shorter than its own.
  for (size_t count = 1024; count <= kMostCpus; count *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(count),
                                                                [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(count);
    if (sched_getaffinity(0, bytes, mask.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::set<int> cpus;
    for (size_t cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.insert(static_cast<int>(cpu));
    }
    return cpus;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("launch: the CPUs on which this process may run cannot be read: ", strerror(errno)));
}

absl::StatusOr<std::vector<Cpu>> ReadCpus(const std::string& root, const std::set<int>& allowed) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, ReadNodes(root));
  std::vector<Cpu> cpus;
  for (const auto& [number, node] : nodes) {
    if (allowed.count(number) == 0) continue;
    const std::string folder = absl::StrCat(root, "/sys/devices/system/cpu/cpu", number);
    const std::string socket = folder + "/topology/physical_package_id";
    Cpu cpu;
    cpu.number = number;
    cpu.node = node;
    if (!absl::SimpleAtoi(Contents(socket), &cpu.socket)) return Unexpected(socket, "a number");
    LOCKSTEP_ASSIGN_OR_RETURN(cpu.core, LowestOf(folder + "/topology/thread_siblings_list"));
    LOCKSTEP_ASSIGN_OR_RETURN(cpu.cache, LastCache(folder));
    cpus.push_back(cpu);
  }
  return cpus;
}

absl::StatusOr<std::vector<int>> GpuNodes(const std::string& root, const char* visible) {
  const std::vector<Gpu> gpus = Gpus(root);
  std::vector<int> nodes;
  if (!visible || gpus.empty()) {
    for (const Gpu& gpu : gpus) nodes.push_back(gpu.node);
    return nodes;
  }
  for (const absl::string_view part : absl::StrSplit(visible, ',', absl::SkipWhitespace())) {
    const absl::string_view entry = absl::StripAsciiWhitespace(part);
    if (entry == "-1") break;
    const Gpu* gpu = FindGpu(gpus, entry);
    if (!gpu) {
      return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES=", Printable(visible), " names \"",
                                                        Printable(entry), "\", which is not one of the ", gpus.size(),
                                                        " GPUs whose NUMA node is known"));
    }
    nodes.push_back(gpu->node);
  }
  return nodes;
}

}  // namespace lockstep::launch
