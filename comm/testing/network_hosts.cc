#include "lockstep/comm/testing/network_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::testing {
namespace {

absl::Status Refused(absl::string_view what, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("no network namespaces for tests here (they need root or a user "
                   "namespace, Linux's veth and iproute2): ",
                   what, ": ", why));
}

std::string NamespacePath(const UniqueFd& fd) { return absl::StrCat("/proc/", getpid(), "/fd/", fd.get()); }

// Enters the namespace; for a thread that ends soon.
absl::Status Enter(int fd) {
  return setns(fd, CLONE_NEWNET) == 0 ? absl::OkStatus() : Refused("setns", strerror(errno));
}

// The descriptor of a new namespace.
absl::StatusOr<UniqueFd> NewNamespace() {
  absl::StatusOr<UniqueFd> result;
  std::thread([&result] {
    UniqueFd fd(unshare(CLONE_NEWNET) == 0 ? open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC) : -1);
    if (fd.valid()) {
      result = std::move(fd);
    } else {
      result = Refused("unshare", strerror(errno));
    }
  }).join();
  return result;
}

// Runs one command of ip(8) on this thread, so in its namespace.
absl::Status Ip(absl::string_view arguments) {
  const std::string command = absl::StrCat("ip ", arguments);
  FILE* pipe = popen(absl::StrCat("PATH=$PATH:/usr/sbin:/sbin ", command, " 2>&1").c_str(), "re");
  if (!pipe) return Refused(command, strerror(errno));
  std::string output;
  char buffer[256];
  while (fgets(buffer, sizeof(buffer), pipe)) output += buffer;
  return pclose(pipe) == 0 ? absl::OkStatus() : Refused(command, absl::StripAsciiWhitespace(output));
}

// `body` on a thread inside `ns`.
absl::Status Inside(const UniqueFd& ns, const std::function<absl::Status()>& body) {
  absl::Status status;
  std::thread([&] {
    status = Enter(ns.get());
    if (status.ok()) status = body();
  }).join();
  return status;
}

absl::Status StartForwarding() {
  LOCKSTEP_RETURN_IF_ERROR(Ip("link set lo up"));
  std::ofstream file("/proc/sys/net/ipv4/ip_forward");
  file << "1" << std::flush;
  return file ? absl::OkStatus() : Refused("/proc/sys/net/ipv4/ip_forward", "cannot be written");
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkHosts>> NetworkHosts::Create(int count) {
  std::unique_ptr<NetworkHosts> hosts(new NetworkHosts());
  LOCKSTEP_RETURN_IF_ERROR(hosts->Make(count));
  return hosts;
}

absl::Status NetworkHosts::Make(int count) {
  LOCKSTEP_ASSIGN_OR_RETURN(router_, NewNamespace());
  LOCKSTEP_RETURN_IF_ERROR(Inside(router_, StartForwarding));
  for (int host = 0; host < count; ++host) {
    LOCKSTEP_ASSIGN_OR_RETURN(hosts_.emplace_back(), NewNamespace());
    LOCKSTEP_RETURN_IF_ERROR(Wire(host));
  }
  return absl::OkStatus();
}

absl::Status NetworkHosts::Wire(int host) {
  const std::string link = absl::StrCat("host", host), subnet = absl::StrCat("10.213.", host);
  LOCKSTEP_RETURN_IF_ERROR(Inside(router_, [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(
        Ip(absl::StrCat("link add ", link, " type veth peer name eth0 netns ", NamespacePath(hosts_[host]))));
    LOCKSTEP_RETURN_IF_ERROR(Ip(absl::StrCat("address add ", subnet, ".1/24 dev ", link)));
    return Ip(absl::StrCat("link set ", link, " up"));
  }));
  return Inside(hosts_[host], [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Ip("link set lo up"));
    LOCKSTEP_RETURN_IF_ERROR(Ip(absl::StrCat("address add ", subnet, ".2/24 dev eth0")));
    LOCKSTEP_RETURN_IF_ERROR(Ip("link set eth0 up"));
    return Ip(absl::StrCat("route add 10.213.0.0/16 via ", subnet, ".1"));
  });
}

std::string NetworkHosts::Address(int host) const { return absl::StrCat("10.213.", host, ".2"); }

void NetworkHosts::Run(int host, const std::function<void()>& body) const {
  const absl::Status entered = Inside(hosts_.at(host), [&body] {
    body();
    return absl::OkStatus();
  });
  if (!entered.ok()) fprintf(stderr, "%s\n", std::string(entered.message()).c_str());
}

std::vector<std::string> NetworkHosts::CommandInside(int host) const {
  return {"nsenter", absl::StrCat("--net=", NamespacePath(hosts_.at(host)))};
}

absl::Status NetworkHosts::Cut(int host) const {
  return Inside(router_, [host]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Ip(absl::StrCat("link set host", host, " down")));
    // Without a route the router would tell the senders that the host cannot be reached.
    return Ip(absl::StrCat("route add blackhole 10.213.", host, ".0/24"));
  });
}

absl::Status NetworkHosts::CutPair(int a, int b) const {
  LOCKSTEP_RETURN_IF_ERROR(CutPath(a, b));
  return CutPath(b, a);
}

absl::Status NetworkHosts::CutPath(int from, int to, int open_port) const {
  return ChangeRules("add", from, to, open_port);
}

absl::Status NetworkHosts::MendPath(int from, int to, int open_port) const {
  return ChangeRules("delete", from, to, open_port);
}

absl::Status NetworkHosts::ChangeRules(const char* change, int from, int to, int open_port) const {
  return Inside(router_, [=]() -> absl::Status {
    const std::string path = absl::StrCat("from 10.213.", from, ".0/24 to 10.213.", to, ".0/24");
    for (const char* end : {"sport", "dport"}) {
      if (open_port == 0) break;
      LOCKSTEP_RETURN_IF_ERROR(
          Ip(absl::StrCat("rule ", change, " pref 100 ", path, " ipproto tcp ", end, " ", open_port, " lookup main")));
    }
    return Ip(absl::StrCat("rule ", change, " pref 200 ", path, " blackhole"));
  });
}

absl::Status NetworkHosts::Mend(int host) const {
  return Inside(router_, [host]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Ip(absl::StrCat("route delete blackhole 10.213.", host, ".0/24")));
    return Ip(absl::StrCat("link set host", host, " up"));
  });
}

int64_t SentBytes() {
  std::ifstream table("/proc/thread-self/net/dev");
  for (std::string word; table >> word;) {
    if (word != "eth0:") continue;
    int64_t bytes = 0;
    for (int column = 0; column < 9; ++column) table >> bytes;
    return bytes;
  }
  return -1;
}

}  // namespace lockstep::comm::testing
