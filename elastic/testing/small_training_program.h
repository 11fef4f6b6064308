// Runs small_training under the launch program.

#ifndef LOCKSTEP_ELASTIC_TESTING_SMALL_TRAINING_PROGRAM_H_
#define LOCKSTEP_ELASTIC_TESTING_SMALL_TRAINING_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/launch/testing/launch_program.h"

namespace lockstep::elastic::testing {

// A line of $D/generations.
struct Place {
  int generation = 0, rank = 0, world_size = 0, commits = 0;
  pid_t pid = 0;
};

// The test needs the paths of the programs in $LAUNCH and $SMALL_TRAINING.
class SmallTrainingTest : public launch::testing::LaunchProgramTest {
 protected:
  // Unsets all variables of small_training.
  void TearDown() override;

  pid_t StartTraining(int ranks, int steps, std::vector<std::string> flags = {});
  std::string DigestOfQuietRun(int ranks, int steps);

  // The places of the last generation, in any order, once all of its ranks train.
  std::vector<Place> Last() const;
  // At most for a minute.
  bool AwaitGeneration(int number);
};

}  // namespace lockstep::elastic::testing

#endif  // LOCKSTEP_ELASTIC_TESTING_SMALL_TRAINING_PROGRAM_H_
