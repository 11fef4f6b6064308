// The program that a launcher starts, as the launchers of a job compare it.

#ifndef LOCKSTEP_LAUNCH_NODE_JOB_PROGRAM_H_
#define LOCKSTEP_LAUNCH_NODE_JOB_PROGRAM_H_

#include <string>
#include <vector>

#include "lockstep/launch/job/job.h"

namespace lockstep::launch {

// `argv` is not empty. Reads the file of the program as exec finds it, and the first argument that is a regular file of
// at most 256 MiB: the script of an interpreter, or the program of numactl and the like. If there is such an argument,
// the file of a program that $PATH has is not read: hosts may have other versions of python3 or bash.
//
// 0.6 ms for a program of 1 MB on a core with instructions for SHA-256.
JobProgram ReadJobProgram(const std::vector<std::string>& argv);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_JOB_PROGRAM_H_
