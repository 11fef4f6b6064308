// The flags of the launch program that say how nodes find each other.

#ifndef LOCKSTEP_LAUNCH_FLAGS_RENDEZVOUS_FLAGS_H_
#define LOCKSTEP_LAUNCH_FLAGS_RENDEZVOUS_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/flags/settings.h"

namespace lockstep::launch {

// The functions in the rows of these flags. InvalidArgument, which says what is expected.
absl::Status SetBackend(const GivenFlag& given, Settings* to);
absl::Status SetNodes(const GivenFlag& given, Settings* to);
absl::Status SetParameters(const GivenFlag& given, Settings* to);  // --rdzv_conf

// Reads --rdzv_endpoint, whose meaning depends on the others, and compares the flags with each other. If the job does
// not meet others, `to->options` has the nodes afterwards, and otherwise `to->rendezvous`. `notices` gets a line about
// each flag that is not used, or means something else than to torchrun.
//
// One node meets others too, if its backend is not static and it has an endpoint: then a second launcher waits for its
// place. It does not with the switch standalone, or if the endpoint's port is 0, where nobody finds it.
//
// InvalidArgument for what is wrong, missing or does not fit together.
absl::Status ResolveRendezvous(const GivenFlags& given, Settings* to, std::vector<std::string>* notices);

// The names that --rdzv_conf takes, also those without effect.
std::vector<std::string> RendezvousParameters();

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_RENDEZVOUS_FLAGS_H_
