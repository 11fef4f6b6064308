#include "lockstep/launch/node/rank_starter.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/cpu/cpu_plan.h"
#include "lockstep/launch/link/link_message.h"
#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {
namespace {

constexpr char kDevicesVariable[] = "CUDA_VISIBLE_DEVICES";
constexpr char kNcclErrorsVariable[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

absl::StatusOr<MasterSocket> ChooseMaster(const LaunchOptions& options, int port) {
  MasterSocket master;
  master.port = port;
  if (port != 0) return master;
  if (options.pass_master_socket) return ListenOnLoopback();
  LOCKSTEP_ASSIGN_OR_RETURN(master.port, FreePort());
  return master;
}

// Processes of the attempt before that are still there must not find this one's store.
absl::StatusOr<MasterSocket> ChooseNewMaster(const LaunchOptions& options, int port, int earlier_port) {
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(MasterSocket master, ChooseMaster(options, port));
    if (port != 0 || master.port != earlier_port) return master;
  }
}

RankPlace PlaceOf(const LaunchOptions& options, const NodeStart& start, int master_port) {
  RankPlace place;
  place.nproc_per_node = options.nproc_per_node;
  place.first_rank = start.first_rank;
  place.world_size = start.world_size;
  place.node_rank = start.node_rank;
  place.nnodes = start.nnodes;
  place.master_addr = start.master_addr.empty() ? "127.0.0.1" : start.master_addr;
  place.master_port = master_port;
  place.run_id = options.run_id;
  place.role = options.role;
  place.restart_count = start.restarts;
  place.max_restarts = options.max_restarts;
  place.virtual_local_rank = options.virtual_local_rank;
  return place;
}

}  // namespace

bool RankStarter::MayStay() const {
  // Not in the file of a program that has only the launcher (launch::Spawn).
  const std::string words = absl::StrCat("this process was not started by", " Lockstep's launch");
  const UniqueFd file(open(program_.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!file.valid() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  void* const bytes = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (bytes == MAP_FAILED) return false;
  const bool found = memmem(bytes, status.st_size, words.data(), words.size()) != nullptr;
  munmap(bytes, status.st_size);
  return found;
}

absl::StatusOr<RankStarter> RankStarter::Create(const std::vector<std::string>& argv, const LaunchOptions& options,
                                                const NodeStart& start, int earlier_port) {
  RankStarter starter(options);
  starter.program_.path = options.executable;
  starter.program_.argv = argv;
  if (starter.program_.path.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(starter.program_.path, FindProgram(argv[0]));
  }
  if (options.virtual_local_rank) {
    LOCKSTEP_RETURN_IF_ERROR(DeviceOf(options.nproc_per_node - 1, starter.VisibleDevices()).status());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(starter.cpus_,
                            CpusOfRanks(options.numa_binding, options.nproc_per_node, starter.VisibleDevices()));
  LOCKSTEP_ASSIGN_OR_RETURN(MasterSocket master, ChooseNewMaster(options, start.master_port, earlier_port));
  starter.place_ = PlaceOf(options, start, master.port);
  starter.master_socket_ = std::move(master.fd);
  if (!options.cgroup.empty()) {
    starter.cgroup_ = AboveStdio(UniqueFd(open(options.cgroup.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  }
  starter.job_secret_ = NewJobSecret(start.nnodes, options.environment);
  return starter;
}

const char* RankStarter::VisibleDevices() const {
  const auto given = options_->environment.find(kDevicesVariable);
  return given != options_->environment.end() ? given->second.c_str() : getenv(kDevicesVariable);
}

absl::StatusOr<std::map<std::string, std::string>> RankStarter::Variables(int local_rank, const Ends& ends) const {
  RankPlace place = place_;
  place.local_rank = local_rank;
  place.restart_count = std::max(place.restart_count, ends.restarts);
  std::map<std::string, std::string> variables = RankVariables(place, getenv("OMP_NUM_THREADS") != nullptr);
  variables[kErrorFileVariable] = ReportPath(ends.report);
  variables[kTorchErrorFileVariable] = ReportPath(ends.report);
  variables[kLinkVariable] = absl::StrCat(ends.link.get());
  if (!getenv(kNcclErrorsVariable)) variables[kNcclErrorsVariable] = "1";
  if (!job_secret_.empty()) variables[kJobSecretVariable] = job_secret_;
  for (const auto& [name, value] : options_->environment) variables[name] = value;
  if (options_->virtual_local_rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(variables[kDevicesVariable], DeviceOf(local_rank, VisibleDevices()));
  }
  return variables;
}

absl::StatusOr<Process> RankStarter::Start(int local_rank, const Ends& ends) const {
  LOCKSTEP_ASSIGN_OR_RETURN(auto variables, Variables(local_rank, ends));
  ProcessSpec spec = program_;
  spec.inherited_fds.push_back(ends.link.get());
  if (local_rank == 0 && master_socket_.valid()) {
    spec.inherited_fds.push_back(master_socket_.get());
    variables.emplace(kMasterSocketVariable, absl::StrCat(master_socket_.get()));
  }
  if (options_->local_rank_argument) {
    spec.argv.insert(spec.argv.begin() + *options_->local_rank_argument,
                     absl::StrCat("--local-rank=", options_->virtual_local_rank ? 0 : local_rank));
  }
  spec.environment = ChangedEnvironment(variables);
  if (local_rank < static_cast<int>(cpus_.size())) spec.cpus = cpus_[local_rank];
  spec.stdout_fd = ends.output.out.get();
  spec.stderr_fd = ends.output.err.get();
  spec.cgroup_fd = cgroup_.get();
  return StartProcess(spec);
}

}  // namespace lockstep::launch
