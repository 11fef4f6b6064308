// Checks that the launchers of a job were started with the same flags and the same program.

#ifndef LOCKSTEP_LAUNCH_JOB_FLAG_CHECK_H_
#define LOCKSTEP_LAUNCH_JOB_FLAG_CHECK_H_

#include <string>

#include "lockstep/launch/job/job.h"

namespace lockstep::launch {

// How the program of the launcher on `host` differs from the job's, as a line for people; "" if it does not. The
// folders of the program and of its script do not count.
std::string ProgramDifference(const std::string& host, const JobProgram& theirs, const JobProgram& job);

// The leader's view. It names one launcher at a time, so that the text does not change with each node that comes.
class FlagCheck {
 public:
  // `host` and `flags` are the ones that the launcher that leads has.
  FlagCheck(std::string host, JobFlags flags);

  // Which flags of a launcher differ from the leader's, as a line for people. "" if none differs.
  const std::string& Check(const Agents& agents);

 private:
  const std::string host_;
  const JobFlags flags_;
  std::string named_;  // the agent that the line is about
  std::string line_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_FLAG_CHECK_H_
