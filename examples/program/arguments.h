// Command lines as Python's argparse takes them, for programs whose flags are gflags.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_ARGUMENTS_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

namespace lockstep::examples {

// `arguments` (argv, the program's name included) with flags spelled as gflags wants them: "--batch-size" becomes
// "--batch_size" and an alias the flag that it stands for, so that with {{"-b", "batch_size"}} "-b 256", "-b256" and
// "-b=256" are one. Values, what is no flag, and everything from a "--" on stay as they are.
std::vector<std::string> WithGflagsNames(const std::vector<std::string>& arguments,
                                         const std::map<std::string, std::string>& aliases);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_ARGUMENTS_H_
