// One host of a job: a launcher and what it starts. All hosts are this machine.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_HOST_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_HOST_H_

#include <stdint.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::elastic::chaos::internal {

inline constexpr char kHostVariable[] = "LOCKSTEP_CHAOS_HOST";  // in each process of a host

struct HostSpec {
  int number = 0;
  std::string launch;                  // the file
  std::vector<std::string> arguments;  // of launch
  std::map<std::string, std::string> environment;
  std::vector<std::string> prefix;  // of the command, as a file and its arguments: where it runs; empty: here
  std::string output, events;       // files, to which all launchers of the host append
};

class Host {
 public:
  explicit Host(HostSpec spec) : spec_(std::move(spec)) {}

  // Starts a launcher. It must not run.
  absl::Status Start();
  bool runs();
  pid_t pid() const { return pid_; }      // of the launcher that was started last
  int starts() const { return starts_; }  // so far

  // In the environment of each process of the launcher that was started last, and of no other one.
  std::string marker() const;
  // The launcher's own processes: three, by pid.
  std::vector<pid_t> LauncherProcesses() const;

  // Returns whether a launcher that has ended did so with `code`.
  bool ExitedWith(int code) const;
  std::string EndText() const;  // "exited with code 1", with its last lines

  // The process that was started last as this local rank; 0: none. Read from the launcher's log of events.
  pid_t LastStarted(int local_rank);

 private:
  std::string MarkerValue() const;
  void ReadEvents();

  const HostSpec spec_;
  pid_t pid_ = 0;
  int starts_ = 0;
  bool runs_ = false;
  int wait_status_ = 0;
  size_t events_read_ = 0;
  std::map<int, pid_t> started_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_HOST_H_
