#include "lockstep/comm/environment/rank_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm {
namespace {

// A line of at most 4 KiB. Empty, with errno, if the file cannot be read.
std::string FirstLine(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return "";
  char text[4096];
  const ssize_t size = read(fd.get(), text, sizeof(text));
  return size <= 0 ? "" : std::string(text, std::find(text, text + size, '\n'));
}

std::string LinkTarget(const char* path) {
  char target[128];
  const ssize_t length = readlink(path, target, sizeof(target));
  return length > 0 ? std::string(target, length) : "";
}

// See proc(5). The command's name ends at the last parenthesis, and field 3, the state, follows.
struct ProcessStat {
  char state = 0;
  uint64_t start_time = 0;         // field 22
  std::optional<int> wait_status;  // field 52; nullopt if this process may not read it
};

// Returns whether the process has this process's user, or this process is root's.
bool IsOurs(const std::string& pid) {
  struct stat owner = {};
  return geteuid() == 0 || (stat(absl::StrCat("/proc/", pid).c_str(), &owner) == 0 && owner.st_uid == geteuid());
}

std::optional<ProcessStat> ReadProcessStat(const std::string& pid) {
  const std::string line = FirstLine(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(line.substr(name_end + 2), ' ');
  ProcessStat stat;
  if (fields.size() < 50 || !absl::SimpleAtoi(fields[22 - 3], &stat.start_time)) return std::nullopt;
  stat.state = fields[0][0];
  int wait_status = 0;
  // The kernel shows 0 to processes that may not read it.
  if (absl::SimpleAtoi(fields[52 - 3], &wait_status) && (wait_status != 0 || IsOurs(pid)))
    stat.wait_status = wait_status;
  return stat;
}

}  // namespace

RankIdentity IdentityOfThisProcess(int rank) {
  RankIdentity identity;
  identity.rank = rank;
  identity.host = HostName();
  identity.pid = getpid();
  if (const auto stat = ReadProcessStat("self")) identity.start_time = stat->start_time;
  identity.boot_id = FirstLine("/proc/sys/kernel/random/boot_id");
  identity.pid_namespace = LinkTarget("/proc/self/ns/pid");
  identity.network_namespace = LinkTarget("/proc/thread-self/ns/net");
  return identity;
}

std::string NameOf(const RankIdentity& identity) {
  return absl::StrCat("rank ", identity.rank, " (host ", identity.host, ", pid ", identity.pid, ")");
}

bool OnOneHost(const RankIdentity& a, const RankIdentity& b) {
  return !a.boot_id.empty() && a.boot_id == b.boot_id && a.network_namespace == b.network_namespace;
}

bool SeeTheSameProcesses(const RankIdentity& a, const RankIdentity& b) {
  return !a.boot_id.empty() && a.boot_id == b.boot_id && a.pid_namespace == b.pid_namespace;
}

std::string EncodeIdentity(const RankIdentity& identity) {
  // A host's name never contains a bar.
  return absl::StrJoin(std::make_tuple(identity.rank, identity.host, identity.pid, identity.start_time,
                                       identity.boot_id, identity.pid_namespace, identity.network_namespace),
                       "|");
}

absl::StatusOr<RankIdentity> DecodeIdentity(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, '|');
  RankIdentity identity;
  if (fields.size() != 7 || !absl::SimpleAtoi(fields[0], &identity.rank) ||
      !absl::SimpleAtoi(fields[2], &identity.pid) || !absl::SimpleAtoi(fields[3], &identity.start_time)) {
    return absl::InvalidArgumentError(absl::StrCat("expected the identity of a rank, found \"", text, "\""));
  }
  identity.host = fields[1];
  identity.boot_id = fields[4];
  identity.pid_namespace = fields[5];
  identity.network_namespace = fields[6];
  return identity;
}

std::string DescribeEnd(std::optional<int> wait_status) {
  if (!wait_status) return "died";
  if (WIFSIGNALED(*wait_status)) {
    const int number = WTERMSIG(*wait_status);
    return absl::StrCat("died: signal ", number, " (", strsignal(number), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(*wait_status));
}

bool IsVisible(const RankIdentity& identity) {
  return !identity.boot_id.empty() && identity.pid_namespace == LinkTarget("/proc/self/ns/pid") &&
         identity.boot_id == FirstLine("/proc/sys/kernel/random/boot_id");
}

std::string FateOfVisible(const RankIdentity& identity) {
  errno = 0;
  const auto stat = ReadProcessStat(absl::StrCat(identity.pid));
  // Without a free descriptor or memory this process sees nothing.
  if (!stat && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) return "";
  if (!stat || stat->start_time != identity.start_time) return "died";
  return stat->state == 'Z' || stat->state == 'X' ? DescribeEnd(stat->wait_status) : "";
}

std::string FateOf(const RankIdentity& identity) { return IsVisible(identity) ? FateOfVisible(identity) : ""; }

bool IsStopped(const RankIdentity& identity) {
  if (!IsVisible(identity)) return false;
  const auto stat = ReadProcessStat(absl::StrCat(identity.pid));
  return stat && stat->start_time == identity.start_time && (stat->state == 'T' || stat->state == 't');
}

}  // namespace lockstep::comm
