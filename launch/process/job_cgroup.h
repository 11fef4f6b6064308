// A cgroup of version 2 with all processes of a job. The kernel kills it as a whole (cgroup.kill, Linux 5.14), so no
// process escapes by forking faster than another one can look.

#ifndef LOCKSTEP_LAUNCH_PROCESS_JOB_CGROUP_H_
#define LOCKSTEP_LAUNCH_PROCESS_JOB_CGROUP_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

// The folder of the cgroup that a process is in, from /proc/self/mountinfo and /proc/self/cgroup. "" if it is in none
// that is mounted.
std::string CgroupFolder(absl::string_view mountinfo, absl::string_view cgroup);

struct JobCgroup {
  std::string folder;  // "": there is none
  // Locked while a process that has inherited it lives. The cgroup is not one that was left behind until then.
  UniqueFd lock;
};

// Creates a cgroup below this process's own. There is none if that is not allowed, as for most users, or if the kernel
// cannot kill it. Before that it removes such cgroups without processes whose launchers have all been killed.
JobCgroup CreateJobCgroup();

// Creates the cgroup below another one, given by its folder. There is none if that is "".
JobCgroup CreateJobCgroupIn(const std::string& parent);

// Kills every process in the cgroup. Does nothing if `folder` is "".
void KillJobCgroup(const std::string& folder);

// Removes the cgroup, and cgroups that nested launches left in it, as soon as no process is in them, or gives up after
// `patience`.
void RemoveJobCgroup(const std::string& folder, absl::Duration patience);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_JOB_CGROUP_H_
