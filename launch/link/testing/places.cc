#include "lockstep/launch/link/testing/places.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch::testing {
namespace {

// Returns the places of the last generation, by rank.
std::vector<Place> LastOf(const std::vector<Place>& places) {
  std::vector<Place> last;
  for (const Place& place : places) {
    if (place.generation == places.back().generation) last.push_back(place);
  }
  std::sort(last.begin(), last.end(), [](const Place& a, const Place& b) { return a.rank < b.rank; });
  return last;
}

}  // namespace

std::vector<Place> Places(const std::string& file) {
  std::vector<Place> places;
  for (const absl::string_view line : absl::StrSplit(ReadFile(file), '\n', absl::SkipEmpty())) {
    Place place;
    char node[64] = "";
    long long formed_us = 0;  // NOLINT(google-runtime-int): as scanf has it
    const int fields =
        sscanf(std::string(line).c_str(), "%d %d of %d, local rank %d, pid %d, step %d, node %63[^,], at %lld",
               &place.generation, &place.rank, &place.world_size, &place.local_rank, &place.pid, &place.step, node,
               &formed_us);
    if (fields != 8) continue;
    place.node = node;
    place.formed_us = formed_us;
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (parts.size() == 2) place.reason = parts[1];
    places.push_back(place);
  }
  return places;
}

std::vector<Place> AwaitPlaces(const std::string& file, int world_size, int after_generation) {
  std::vector<Place> last;
  EXPECT_TRUE(Eventually(
      [&] {
        last = LastOf(Places(file));
        return !last.empty() && last[0].generation > after_generation && last[0].world_size == world_size &&
               static_cast<int>(last.size()) == world_size;
      },
      absl::Seconds(60)))
      << "waiting for " << world_size << " ranks after generation " << after_generation << ":\n"
      << ReadFile(file);
  last.resize(world_size);
  return last;
}

}  // namespace lockstep::launch::testing
