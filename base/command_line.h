// Parses the command line of a program that uses gflags. Prints a custom --help, and suggests the nearest flag for a
// misspelled one.
//
//   DEFINE_int64(epochs, 5, "How often to go through the images.");
//   DEFINE_int64(batch_size, 64, "Images a step.");
//
//   int main(int argc, char** argv) {
//     lockstep::ProgramUsage usage;
//     usage.source = __FILE__;
//     usage.arguments = "[FOLDER]";
//     usage.max_arguments = 1;
//     usage.description = "Trains a network on the images of a folder.";
//     usage.groups = {{"Training", {"epochs"}}};
//     usage.aliases = {{"-b", "batch_size"}};
//     const std::vector<std::string> arguments = lockstep::ParseCommandLine(argc, argv, usage);
//
// Only programs should depend on this, since only programs define flags.

#ifndef LOCKSTEP_BASE_COMMAND_LINE_H_
#define LOCKSTEP_BASE_COMMAND_LINE_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;  // names, in the order in which --help lists them
};

struct ProgramUsage {
  // __FILE__ of the source that defines the program's flags. --help lists only those, and no flags of libraries.
  std::string source;

  // The names of the arguments that are not flags, such as "[FOLDER]", and their maximum number.
  std::string arguments = {};
  size_t max_arguments = 0;

  // A description of the program, and examples. --help prints it unchanged.
  std::string description = {};

  // Flags without a group follow under "Other flags", or under "Flags" if `groups` is empty.
  std::vector<FlagGroup> groups = {};

  // String flags that may also be given without a value, like bool flags: "--resume" means "--resume=true", and
  // "--noresume" means "--resume=false". Another value needs a "=", as in "--resume=auto".
  std::set<std::string> switches = {};

  // Other names of flags, as typed: {{"-b", "batch_size"}, {"--wd", "weight_decay"}}.
  std::map<std::string, std::string> aliases = {};

  // Other programs, and flags that they have and this one lacks: {{"//tools:copy", {"recursive"}}}. The error for such
  // a flag names the program.
  std::map<std::string, std::set<std::string>> other_programs = {};
};

// Sets the flags in `argv` and returns the other arguments, without the program's name.
//
// "--batch_size=8", "--batch-size=8" and "--batch_size 8" are equivalent, and with an alias so are "-b 8", "-b=8" and
// "-b8". A bool flag is set by "--resume" or "--resume=true" and cleared by "--noresume" or "--resume=false". Arguments
// after "--" are not flags. Flags of libraries, such as glog's --v=1, are accepted too, but gflags' own flags are not.
//
// For -h, -help or --help it prints the usage to standard output, wrapped at the width of the terminal, and exits with
// 0. For a mistake it prints one line to standard error and exits with 2:
//
//   train: unknown flag --epoch; did you mean --epochs? --help lists the flags
//   train: unknown flag --recursive; //tools:copy has it; --help lists the flags
//   train: --epochs=many: expected a whole number of at most 64 bits
//   train: unexpected argument "data"; --help lists the flags
//
// At the end of the process it checks that standard output was written completely. If not, for example because the disk
// is full, it prints a line to standard error, and an exit code of 0 becomes 1.
std::vector<std::string> ParseCommandLine(int argc, char** argv, const ProgramUsage& usage);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_COMMAND_LINE_H_
