// The payloads of a status about a launch, for FirstFailure() and ExitCode() (failure.h).

#ifndef LOCKSTEP_LAUNCH_REPORT_FAILURE_PAYLOADS_H_
#define LOCKSTEP_LAUNCH_REPORT_FAILURE_PAYLOADS_H_

namespace lockstep::launch {

// Payloads of a launch's status: an encoded RankFailure, the lines of its stderr after the name of their file, a
// signal's number, and the exit code of a program that could not be executed.
inline constexpr char kFailurePayload[] = "lockstep.launch/rank_failure";
inline constexpr char kStderrPayload[] = "lockstep.launch/stderr";
inline constexpr char kSignalPayload[] = "lockstep.launch/signal";
inline constexpr char kNotExecutedPayload[] = "lockstep.launch/not_executed";

// The exit codes of shells for programs that are not executable and not found.
inline constexpr int kNotExecutable = 126, kNotFound = 127;

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_REPORT_FAILURE_PAYLOADS_H_
