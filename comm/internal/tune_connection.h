#ifndef LOCKSTEP_COMM_INTERNAL_TUNE_CONNECTION_H_
#define LOCKSTEP_COMM_INTERNAL_TUNE_CONNECTION_H_

namespace lockstep::comm::internal {

// For a TCP connection: small messages go at once, and a host that vanished is found in 20 s, though nothing is sent.
// Nothing for another kind.
void TuneConnection(int fd);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_TUNE_CONNECTION_H_
