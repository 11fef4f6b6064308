// The folder in which the launchers of a user have their sockets: $XDG_RUNTIME_DIR/lockstep, or /tmp/lockstep-<uid>.

#ifndef LOCKSTEP_LAUNCH_STATUS_STATUS_FOLDER_H_
#define LOCKSTEP_LAUNCH_STATUS_STATUS_FOLDER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

// The folder for a launcher of this process's user.
std::string StatusFolder();

// The folders where launchers of this user may be. A batch job may lack the variable that a login has, so /tmp counts
// too, unless XDG_RUNTIME_DIR is a folder that is not the system's.
std::vector<std::string> StatusFolders();

// Opens `folder`; with `create` it is made if it is not there. It must be this user's, closed to others, and not a
// link. NotFound: it is not there. FailedPrecondition: it is not as it must be, or cannot be made.
absl::StatusOr<UniqueFd> OpenStatusFolder(const std::string& folder, bool create);

// A path to `name` in the open folder that is short enough for the address of a socket, however long the folder's is.
std::string PathIn(const UniqueFd& folder, absl::string_view name);

// "launch-4711.sock", and the pid in such a name; 0 if it is not one.
std::string SocketName(pid_t pid);
pid_t PidOfSocket(absl::string_view name);

// The pids whose sockets are in the folder, in order.
std::vector<pid_t> SocketsIn(const UniqueFd& folder);

// A stream that is connected to `path`, non-blocking. Invalid with errno: ECONNREFUSED if nobody listens any more,
// EAGAIN if too many others wait.
UniqueFd ConnectTo(const std::string& path);

// Removes the sockets of launchers that are gone.
void RemoveStaleSockets(const UniqueFd& folder);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_STATUS_FOLDER_H_
