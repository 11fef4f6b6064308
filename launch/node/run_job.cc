#include "lockstep/launch/node/run_job.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "lockstep/base/crypto/crypto.h"
#include "lockstep/base/crypto/job_secret.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/flags/check_options.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/node/agent.h"
#include "lockstep/launch/node/job_program.h"
#include "lockstep/launch/process/signal_relay.h"
#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"
#include "lockstep/launch/rendezvous/tcp/tcp_rendezvous.h"

namespace lockstep::launch {
namespace {

constexpr size_t kAgentIdBytes = 8;
// How often a name is looked for that nobody knows, and after which times a line says so.
constexpr absl::Duration kNamePause = absl::Milliseconds(500);
constexpr absl::Duration kSecondLine = absl::Seconds(30), kFurtherLines = absl::Minutes(1);

JobLimits LimitsOf(const LaunchOptions& options, const RendezvousOptions& nodes) {
  JobLimits limits;
  limits.min_nodes = nodes.min_nodes;
  limits.max_nodes = nodes.max_nodes;
  limits.join_timeout = nodes.join_timeout;
  limits.last_call = nodes.last_call_timeout;
  limits.max_restarts = options.max_restarts;
  limits.restart_window = options.restart_window;
  limits.host = HostName();
  limits.flags = {absl::StrCat("--nnodes=", RangeText({0, nodes.min_nodes, nodes.max_nodes}, ":")),
                  absl::StrCat("--max-restarts=", options.max_restarts),
                  absl::StrCat("--restart-window=", absl::FormatDuration(options.restart_window)),
                  absl::StrCat("--rdzv-conf=join_timeout=", absl::FormatDuration(nodes.join_timeout)),
                  absl::StrCat("--rdzv-conf=last_call_timeout=", absl::FormatDuration(nodes.last_call_timeout)),
                  absl::StrCat("--rdzv-conf=same_program=", nodes.same_program ? "true" : "false")};
  limits.same_program = nodes.same_program;
  return limits;
}

std::string TextOf(const HostAndPort& endpoint) { return WithPort(endpoint.host, absl::StrCat(endpoint.port)); }

std::string EtcdEndpoint(const HostAndPort& endpoint, const RendezvousOptions& nodes) {
  return absl::StrCat(nodes.ca_file.empty() && nodes.cert_file.empty() ? "http://" : "https://",
                      absl::StrReplaceAll(TextOf(endpoint), {{"%", "%25"}}));
}

std::string OpenJob(const std::string& where) {
  return absl::StrCat("whoever reaches ", where, " can take part in the job, since LOCKSTEP_JOB_SECRET is not set");
}

absl::StatusOr<std::unique_ptr<Rendezvous>> JoinByTcp(const LaunchOptions& options, const RendezvousOptions& nodes,
                                                      const std::optional<crypto::JobSecret>& secret,
                                                      AgentOptions* agent) {
  TcpOptions tcp;
  tcp.host = nodes.endpoints[0].host;
  tcp.port = nodes.endpoints[0].port;
  tcp.job_id = options.run_id;
  tcp.agent_id = agent->id;
  tcp.secret = secret;
  tcp.is_host = nodes.is_host;
  tcp.join_timeout = nodes.join_timeout;
  tcp.on_notice = options.on_notice;
  if (nodes.time_to_live > absl::ZeroDuration()) tcp.time_to_live = nodes.time_to_live;
  LOCKSTEP_ASSIGN_OR_RETURN(TcpJoined joined, JoinTcp(tcp));
  if (joined.is_host) {
    agent->limits.anchor = agent->id;
    // The others reach this node there. Its own idea of its address may be 127.0.1.1.
    if (nodes.local_addr.empty()) agent->address = tcp.host;
    if (!secret) agent->warning = OpenJob(agent->where);
  }
  return std::move(joined.rendezvous);
}

// Without the ids, the secret and the callbacks.
etcd::EtcdOptions EtcdOptionsOf(const RendezvousOptions& nodes) {
  etcd::EtcdOptions etcd;
  for (const HostAndPort& endpoint : nodes.endpoints) etcd.endpoints.push_back(EtcdEndpoint(endpoint, nodes));
  etcd.ca = nodes.ca_file;
  etcd.cert = nodes.cert_file;
  etcd.key = nodes.key_file;
  etcd.user = nodes.user;
  etcd.password = nodes.password;
  if (nodes.time_to_live > absl::ZeroDuration()) etcd.ttl = nodes.time_to_live;
  etcd.timeout = std::max(etcd.timeout, 2 * etcd.ttl);
  etcd.join_timeout = nodes.join_timeout;
  return etcd;
}

absl::StatusOr<std::unique_ptr<Rendezvous>> JoinByEtcd(const LaunchOptions& options, const RendezvousOptions& nodes,
                                                       const std::optional<crypto::JobSecret>& secret,
                                                       AgentOptions* agent, SharedLease* lease) {
  etcd::EtcdOptions etcd = EtcdOptionsOf(nodes);
  etcd.job_id = options.run_id;
  etcd.agent_id = agent->id;
  if (!secret && nodes.user.empty() && nodes.cert_file.empty()) agent->warning = OpenJob(agent->where);
  if (secret) etcd.secret = secret->DeriveKey("launch by etcd");
  etcd.on_lease = [lease](int64_t id) { lease->Set(id); };
  etcd.on_notice = options.on_notice;
  return etcd::EtcdRendezvous::Join(etcd);
}

bool MustServe(const RendezvousOptions& nodes) {
  return nodes.backend == RendezvousOptions::Backend::kTcp && nodes.is_host.value_or(false);
}

absl::Status FindHost(const std::string& host) {
  return Annotate(Resolve(host, 0).status(), absl::StrCat("cannot find host ", host));
}

// The first endpoint whose name is known, or where this node is to listen, whether its name is known or not. A name may
// become known only after this node has started, as that of a Kubernetes pod does.
absl::StatusOr<std::string> FindEndpoint(const LaunchOptions& options, const RendezvousOptions& nodes) {
  if (MustServe(nodes)) return nodes.endpoints[0].host;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<SignalRelay> relay, SignalRelay::Create());
  const absl::Time start = MonotonicTime(), deadline = start + nodes.join_timeout;
  const std::string time = absl::FormatDuration(nodes.join_timeout);
  absl::Duration next_line;
  for (;;) {
    absl::Status problem;
    for (const HostAndPort& endpoint : nodes.endpoints) {
      const absl::Status found = FindHost(endpoint.host);
      if (found.ok()) return endpoint.host;
      problem.Update(found);
    }
    if (MonotonicTime() >= deadline) {
      return absl::UnavailableError(absl::StrCat(problem.message(), " (tried for ", time, ")"));
    }
    const absl::Duration lasts = MonotonicTime() - start;
    if (lasts >= next_line && options.on_notice) {
      const bool is_first = next_line == absl::ZeroDuration();
      options.on_notice(is_first ? absl::StrCat(problem.message(), "; this node tries again for ", time)
                                 : absl::StrCat(problem.message(), " (tried for ",
                                                absl::FormatDuration(absl::Trunc(lasts, absl::Seconds(1))), " of ",
                                                time, ")"));
      next_line = is_first ? kSecondLine : absl::Floor(lasts, kFurtherLines) + kFurtherLines;
    }
    pollfd signals = {relay->fd(), POLLIN, 0};
    poll(&signals, 1, PollTimeout(kNamePause));
    while (const int signal = relay->Take()) {
      if (signal != SIGUSR1 && signal != SIGUSR2) return StoppedStatus(signal, {}, absl::ZeroDuration());
    }
  }
}

// At which the others reach it.
absl::StatusOr<std::string> AddressOfThisNode(const LaunchOptions& options, const RendezvousOptions& nodes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string host, FindEndpoint(options, nodes));
  if (!nodes.local_addr.empty()) return nodes.local_addr;
  if (MustServe(nodes)) return host;
  const std::string address = LocalAddressTowards(host);
  if (!address.empty()) return address;
  return absl::UnavailableError(
      absl::StrCat("this node has no route to ", host, "; --local_addr names its own address"));
}

}  // namespace

absl::Status RunJob(const std::vector<std::string>& program, const LaunchOptions& options,
                    const RendezvousOptions& nodes, SharedLease* lease) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(program, options));
  const absl::StatusOr<std::optional<crypto::JobSecret>> read = crypto::ReadJobSecret();
  if (!read.ok()) return absl::InvalidArgumentError(read.status().message());
  const std::optional<crypto::JobSecret>& secret = *read;
  AgentOptions agent;
  agent.id = absl::BytesToHexString(crypto::RandomBytes(kAgentIdBytes));
  agent.where = TextOf(nodes.endpoints[0]);
  LOCKSTEP_ASSIGN_OR_RETURN(agent.address, AddressOfThisNode(options, nodes));
  agent.node_rank = nodes.node_rank.value_or(-1);
  agent.limits = LimitsOf(options, nodes);
  agent.limits.program = ReadJobProgram(program);
  std::unique_ptr<Rendezvous> rendezvous;
  if (nodes.backend == RendezvousOptions::Backend::kEtcd) {
    LOCKSTEP_ASSIGN_OR_RETURN(rendezvous, JoinByEtcd(options, nodes, secret, &agent, lease));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(rendezvous, JoinByTcp(options, nodes, secret, &agent));
  }
  return RunAgent(program, options, agent, std::move(rendezvous));
}

absl::Status EndLease(const RendezvousOptions& nodes, int64_t lease) {
  if (lease == 0) return absl::OkStatus();
  const etcd::EtcdOptions etcd = EtcdOptionsOf(nodes);
  return Annotate(etcd::EtcdRendezvous::EndLease(etcd, lease),
                  absl::StrCat("the other nodes see the loss of this one only when its lease ends, within ",
                               absl::FormatDuration(etcd.ttl)));
}

}  // namespace lockstep::launch
