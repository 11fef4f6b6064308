// Describes the flags of a program that has many: one row for each flag.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_FLAG_TABLE_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_FLAG_TABLE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"

namespace lockstep::examples {

// A row has the flag's name, the variable that it sets, its meaning and the values that it may have. The variable's
// value is the flag's default. So a flag is named once, apart from the variable:
//
//   struct Config {
//     int64_t epochs = 5;
//     Schedule schedule = Schedule::kStep;
//   };
//
//   FlagTable FlagsOf(Config& config) {
//     FlagTable flags;
//     flags.Group("Training");
//     flags.Add("epochs", &config.epochs, "The number of passes over the images.", {1});
//     flags.AddChoice("schedule", &config.schedule, {{"step", Schedule::kStep}, {"cosine", Schedule::kCosine}},
//                     "The learning rate's schedule.");
//     return flags;
//   }
//
//   int main(int argc, char** argv) {
//     Config config;
//     FlagTable flags = FlagsOf(config);
//     ProgramUsage usage;
//     flags.Register(usage);
//     ParseCommandLine(argc, argv, usage);
//     const absl::Status status = flags.Check();  // "--epochs=0: expected 1 or more"
//
// Errors name a flag as its row spells it, with underscores or dashes. Variables are borrowed and must outlive the
// table and, after Register(), the program's use of gflags.
class FlagTable {
 public:
  // The ends belong to the range. `most` avoids overflow in sums and products of flags.
  struct Range {
    double least = -1e9;
    double most = 1e9;
  };

  // --help lists the following flags under `title`.
  void Group(absl::string_view title);

  // A flag of type bool, int32_t, int64_t, double or std::string. Without a range, any value is allowed.
  template <typename T>
  void Add(absl::string_view name, T* value, absl::string_view help) {
    AddRow(name, value, help);
  }
  template <typename T>
  void Add(absl::string_view name, T* value, absl::string_view help, Range range) {
    AddRow(name, value, help).range = range;
  }
  // A whole number, or an empty text for std::nullopt.
  void Add(absl::string_view name, std::optional<int64_t>* value, absl::string_view help);

  // One of several texts. The empty text may be one of them. Requires: `*value` is among the choices.
  template <typename T>
  void AddChoice(absl::string_view name, T* value, const std::vector<std::pair<std::string, T>>& choices,
                 absl::string_view help) {
    std::string text;
    std::vector<std::string> texts;
    for (const auto& choice : choices) {
      texts.push_back(choice.first);
      if (choice.second == *value) text = choice.first;
    }
    AddText(name, text, help, Alternatives(texts), [value, choices](const std::string& given) {
      for (const auto& choice : choices) {
        if (choice.first != given) continue;
        *value = choice.second;
        return true;
      }
      return false;
    });
  }

  // Makes gflags know the flags, and adds their groups to `usage`. Call it once in a process.
  void Register(ProgramUsage& usage);

  // Sets the variables of choices and optional numbers. InvalidArgument, naming the flag, its value and the expected
  // values: a value is not allowed.
  absl::Status Check();

 private:
  using Variable = std::variant<bool*, int32_t*, int64_t*, double*, std::string*>;
  struct Row {
    std::string name;
    std::string help;
    Variable variable;
    std::optional<Range> range;
    // For a text that stands for a value of another type: the text, what is allowed, and whether `take` accepts it.
    std::string text;
    std::string expected;
    std::function<bool(const std::string&)> take;
  };

  Row& AddRow(absl::string_view name, Variable variable, absl::string_view help);
  void AddText(absl::string_view name, absl::string_view text, absl::string_view help, absl::string_view expected,
               std::function<bool(const std::string&)> take);
  static std::string Identifier(const std::string& name);

  std::deque<Row> rows_;  // their addresses do not change
  std::vector<FlagGroup> groups_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FLAG_TABLE_H_
