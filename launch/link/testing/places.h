// The lines that counting_rank writes about its generations, for tests.

#ifndef LOCKSTEP_LAUNCH_LINK_TESTING_PLACES_H_
#define LOCKSTEP_LAUNCH_LINK_TESTING_PLACES_H_

#include <stdint.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::launch::testing {

// One rank's knowledge of one generation.
struct Place {
  int generation = 0, rank = 0, world_size = 0, local_rank = 0, step = 0;
  pid_t pid = 0;
  std::string node;       // $NODE
  int64_t formed_us = 0;  // CLOCK_MONOTONIC
  std::string reason;
};

// Every place that ranks have written to the file so far.
std::vector<Place> Places(const std::string& file);

// The places of the last generation, by rank, once that is later than `after_generation`, is complete, and has
// `world_size` ranks. Otherwise it adds a failure to the test after 60 s, and the places may be of no process.
std::vector<Place> AwaitPlaces(const std::string& file, int world_size, int after_generation = 0);

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_LINK_TESTING_PLACES_H_
