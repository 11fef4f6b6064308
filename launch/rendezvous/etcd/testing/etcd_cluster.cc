#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/testing/processes.h"
#include "nlohmann/json.hpp"

namespace lockstep::launch::etcd::testing {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(40);
constexpr int kClientPort = 2379, kPeerPort = 2380;  // of a member that has its own host
// Between the choice of a port and its use, another process may take it.
constexpr int kStarts = 3;

// A port that was free a moment ago; 0 after an error. `fd` keeps it from being chosen again.
int FreePort(UniqueFd* fd) {
  *fd = Bind(Resolve("127.0.0.1", 0)->front());
  return fd->valid() ? BoundAddress(fd->get()).port() : 0;
}

}  // namespace

EtcdCluster::EtcdCluster(const EtcdClusterOptions& options)
    : options_(options),
      folder_(options.folder.empty() ? launch::testing::NewFolder() : options.folder),
      pids_(options.members) {}

EtcdCluster::~EtcdCluster() {
  for (int member = 0; member < options_.members; ++member) Kill(member);
}

absl::StatusOr<std::unique_ptr<EtcdCluster>> EtcdCluster::Start(const EtcdClusterOptions& options) {
  HttpOptions http_options;
  http_options.ca = options.ca;
  http_options.cert = options.cert;
  http_options.key = options.key;
  absl::Status status;
  for (int start = 0; start < kStarts; ++start) {
    std::unique_ptr<EtcdCluster> cluster(new EtcdCluster(options));
    LOCKSTEP_ASSIGN_OR_RETURN(cluster->http_, HttpClient::Create(http_options));
    cluster->ChoosePorts();
    status = absl::OkStatus();
    for (int member = 0; member < options.members; ++member) {
      LOCKSTEP_RETURN_IF_ERROR(cluster->StartMember(member));
    }
    for (int member = 0; member < options.members && status.ok(); ++member) status = cluster->AwaitAnswer(member);
    if (status.ok()) return cluster;
  }
  return status;
}

void EtcdCluster::ChoosePorts() {
  const absl::string_view scheme = options_.cert.empty() ? "http" : "https";
  for (int member = 0; options_.hosts && member < options_.members; ++member) {
    const std::string address = options_.hosts->Address(member);
    endpoints_.push_back(absl::StrCat(scheme, "://", address, ":", kClientPort));
    peers_.push_back(absl::StrCat("http://", address, ":", kPeerPort));
  }
  if (options_.hosts) return;
  std::vector<UniqueFd> held(2 * options_.members);
  for (int member = 0; member < options_.members; ++member) {
    endpoints_.push_back(absl::StrCat(scheme, "://127.0.0.1:", FreePort(&held[2 * member])));
    peers_.push_back(absl::StrCat("http://127.0.0.1:", FreePort(&held[2 * member + 1])));
  }
}

std::vector<std::string> EtcdCluster::Arguments(int member) const {
  std::vector<std::string> cluster;
  for (int i = 0; i < options_.members; ++i) cluster.push_back(absl::StrCat("m", i, "=", peers_[i]));
  std::vector<std::string> arguments;
  if (options_.hosts) arguments = options_.hosts->CommandInside(member);
  const std::vector<std::string> flags = {
      "etcd",
      absl::StrCat("--name=m", member),
      absl::StrCat("--data-dir=", folder_, "m", member),
      absl::StrCat("--listen-client-urls=", endpoints_[member]),
      absl::StrCat("--advertise-client-urls=", endpoints_[member]),
      absl::StrCat("--listen-peer-urls=", peers_[member]),
      absl::StrCat("--initial-advertise-peer-urls=", peers_[member]),
      absl::StrCat("--initial-cluster=", absl::StrJoin(cluster, ",")),
      "--logger=zap",
  };
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  if (options_.cert.empty()) return arguments;
  arguments.push_back(absl::StrCat("--cert-file=", options_.cert));
  arguments.push_back(absl::StrCat("--key-file=", options_.key));
  arguments.push_back(absl::StrCat("--trusted-ca-file=", options_.ca));
  arguments.push_back("--client-cert-auth");
  return arguments;
}

absl::Status EtcdCluster::StartMember(int member) {
  ProcessSpec spec;
  spec.argv = Arguments(member);
  LOCKSTEP_ASSIGN_OR_RETURN(spec.path, FindProgram(spec.argv[0]));
  spec.environment = {absl::StrCat("HOME=", folder_), absl::StrCat("PATH=", getenv("PATH")), "GOMAXPROCS=2"};
  const std::string log = absl::StrCat(folder_, "m", member, ".log");
  const UniqueFd output(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  spec.stdout_fd = spec.stderr_fd = output.get();
  LOCKSTEP_ASSIGN_OR_RETURN(const Process process, StartProcess(spec));
  pids_[member] = process.pid;
  return absl::OkStatus();
}

void EtcdCluster::Kill(int member) {
  const pid_t pid = std::exchange(pids_[member], 0);
  if (pid == 0) return;
  kill(pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void EtcdCluster::Stop(int member) { kill(pids_[member], SIGSTOP); }

void EtcdCluster::Continue(int member) { kill(pids_[member], SIGCONT); }

absl::Status EtcdCluster::Restart(int member) {
  Kill(member);
  LOCKSTEP_RETURN_IF_ERROR(StartMember(member));
  return AwaitAnswer(member);
}

// A member answers such a read when the cluster has a leader. With authentication on, it answers that it wants a user.
absl::Status EtcdCluster::AwaitAnswer(int member) {
  const absl::Time deadline = absl::Now() + kStartLimit;
  absl::Status status = absl::UnavailableError("");
  while (absl::IsUnavailable(status) && absl::Now() < deadline) {
    status = Call(member, "kv/range", R"({"key": "YQ=="})").status();
    if (absl::StrContains(status.message(), "user name is empty")) return absl::OkStatus();
    if (launch::testing::Gone(pids_[member])) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  const std::string log = launch::testing::ReadFile(absl::StrCat(folder_, "m", member, ".log"));
  return Annotate(status, absl::StrCat("etcd member ", member, " with this log: ",
                                       log.substr(log.size() - std::min<size_t>(log.size(), 2000))));
}

absl::StatusOr<int> EtcdCluster::Leader() {
  for (int member = 0; member < options_.members; ++member) {
    if (pids_[member] == 0) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string answer, Call(member, "maintenance/status", "{}"));
    const auto json = nlohmann::json::parse(answer, nullptr, false);
    if (json.is_object() && json.contains("leader") && json["leader"] == json["header"]["member_id"]) return member;
  }
  return absl::UnavailableError("no member of the etcd cluster leads");
}

absl::StatusOr<std::string> EtcdCluster::Call(int member, absl::string_view path, absl::string_view json) {
  HttpRequest request;
  request.url = absl::StrCat(endpoints_[member], "/v3/", path);
  request.body = std::string(json);
  request.timeout = absl::Seconds(10);
  absl::StatusOr<HttpReply> reply = absl::UnknownError("");
  if (options_.hosts) {
    options_.hosts->Run(member, [&] { reply = Post(std::move(request)); });
  } else {
    reply = Post(std::move(request));
  }
  LOCKSTEP_RETURN_IF_ERROR(reply.status());
  if (reply->code != 200) return absl::UnavailableError(absl::StrCat("HTTP ", reply->code, ": ", reply->body));
  return reply->body;
}

absl::StatusOr<HttpReply> EtcdCluster::Post(HttpRequest request) {
  absl::StatusOr<HttpReply> reply = absl::UnknownError("");
  bool done = false;
  http_->Post(std::move(request), [&](absl::StatusOr<HttpReply> got) {
    reply = std::move(got);
    done = true;
  });
  const UniqueFd never(eventfd(0, EFD_CLOEXEC));
  absl::Status status;
  while (!done && status.ok()) status = http_->Poll(never.get(), absl::Seconds(1));
  http_->CancelAll();
  LOCKSTEP_RETURN_IF_ERROR(status);
  return reply;
}

}  // namespace lockstep::launch::etcd::testing
