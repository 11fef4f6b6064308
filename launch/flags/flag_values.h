// From the text of a flag's value to an option: the functions in the rows of the table of flags. InvalidArgument, which
// says what is expected, for a value that the flag does not have.

#ifndef LOCKSTEP_LAUNCH_FLAGS_FLAG_VALUES_H_
#define LOCKSTEP_LAUNCH_FLAGS_FLAG_VALUES_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/flags/settings.h"

namespace lockstep::launch {

// "--spares=x: expected a whole number".
absl::Status Expected(const GivenFlag& given, absl::string_view expected);

absl::Status Read(const GivenFlag& given, bool* is_given);  // of a switch
absl::Status Read(const GivenFlag& given, int* number);
absl::Status Read(const GivenFlag& given, std::optional<int>* number);
absl::Status Read(const GivenFlag& given, std::string* text);
absl::Status Read(const GivenFlag& given, absl::Duration* duration);
absl::Status Read(const GivenFlag& given, RankStreams* streams);
absl::Status Read(const GivenFlag& given, NumaBinding* binding);
absl::Status Read(const GivenFlag& given, std::set<int>* local_ranks);
// torchrun's lists: "a,b" is a and b, and "a,,b" is the text "a,b".
absl::Status Read(const GivenFlag& given, std::vector<std::string>* list);
absl::Status ReadHost(const GivenFlag& given, std::string* host);

template <typename T>
T* OptionOf(Settings* settings, T LaunchOptions::*option) {
  return &(settings->options.*option);
}

template <typename T>
T* OptionOf(Settings* settings, T RendezvousOptions::*option) {
  return &(settings->rendezvous.*option);
}

// Sets a member of LaunchOptions or RendezvousOptions.
template <auto option>
absl::Status Set(const GivenFlag& given, Settings* to) {
  return Read(given, OptionOf(to, option));
}

template <auto option>
absl::Status SetHost(const GivenFlag& given, Settings* to) {
  return ReadHost(given, OptionOf(to, option));
}

absl::Status SetRanks(const GivenFlag& given, Settings* to);
absl::Status SetSignals(const GivenFlag& given, Settings* to);
absl::Status SetWindow(const GivenFlag& given, Settings* to);

// For a flag without effect.
absl::Status CheckInterval(const GivenFlag& given, Settings* to);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_FLAG_VALUES_H_
