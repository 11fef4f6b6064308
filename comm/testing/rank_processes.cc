#include "lockstep/comm/testing/rank_processes.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm::testing {
namespace {

constexpr char kStatus[] = "status ";
constexpr char kName[] = "I am ";

// The next port of the hosts, whose network namespaces nobody else uses. Groups that live at the same time need
// different ports.
int NextPort() {
  static int port = 29500;
  return port++;
}

// Each host has an equal part of the world, and the first hosts one rank more if that does not divide.
int HostOf(int rank, int world_size, int hosts) { return rank * hosts / world_size; }

}  // namespace

void SayStatus(const Process::Say& say, const absl::Status& status) { say(absl::StrCat(kStatus, status.ToString())); }

RankProcesses::RankProcesses(int world_size, InitOptions options, const Body& body, const NetworkHosts* hosts) {
  options.init_method = hosts ? absl::StrCat("tcp://", hosts->Address(0), ":", NextPort())
                              : absl::StrCat("file://", folder_.path(), "/store");
  options.world_size = world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    options.rank = rank;
    processes_.emplace_back([&](const Process::Say& say) {
      say(absl::StrCat(kName, NameOf(IdentityOfThisProcess(rank))));
      if (!hosts) return body(options, say);
      int code = 0;
      hosts->Run(HostOf(rank, world_size, hosts->count()), [&] { code = body(options, say); });
      return code;
    });
  }
  for (Process& process : processes_) {
    const auto name = process.AwaitLine(kName);
    names_.push_back(name ? name->text.substr(sizeof(kName) - 1) : "a rank that did not start");
  }
}

bool RankProcesses::AwaitAll(const std::string& line) {
  bool all = true;
  for (Process& process : processes_) all = process.AwaitLine(line).has_value() && all;
  return all;
}

absl::Duration RankProcesses::Signal(int rank, int number) {
  const absl::Duration now = Process::Now();
  processes_[rank].Signal(number);
  return now;
}

std::optional<Process::Line> RankProcesses::AwaitStatus(int rank) {
  std::optional<Process::Line> line = processes_[rank].AwaitLine(kStatus);
  if (line) line->text.erase(0, sizeof(kStatus) - 1);
  return line;
}

}  // namespace lockstep::comm::testing
