// Describes the flags of a program that has many: one row for each flag.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_FLAG_TABLE_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_FLAG_TABLE_H_

#include <gflags/gflags.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {

// A row has the flag's name, the variable that it sets, its meaning and the values that it may have. The variable's
// value is the flag's default. So a flag is named once, apart from the variable:
//
//   FlagTable flags;
//   flags.Group("Training");
//   flags.Add("epochs", &config.epochs, "The number of passes over the images.", {1});
//   flags.AddChoice("schedule", &config.schedule, {"step", "cosine"}, "The learning rate's schedule.");
//   flags.Register(usage);
//   ParseCommandLine(argc, argv, usage);
//   const absl::Status status = flags.Check();  // "--epochs=0: expected 1 or more"
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
  void Group(absl::string_view title) { groups_.push_back({std::string(title), {}}); }

  // A flag of type bool, int32_t, int64_t, double or std::string. Without a range, any value is allowed.
  template <typename T>
  void Add(const std::string& name, T* value, absl::string_view help) {
    AddRow(name, value, help, [] { return absl::OkStatus(); });
  }
  template <typename T>
  void Add(const std::string& name, T* value, absl::string_view help, Range range) {
    AddRow(name, value, help, [=] {
      return CheckRanges({{name, static_cast<double>(*value), range.least, range.most}});
    });
  }
  // A whole number, or an empty text for std::nullopt.
  void Add(const std::string& name, std::optional<int64_t>* value, absl::string_view help) {
    std::string* const text = &texts_.emplace_back(*value ? absl::StrCat(**value) : "");
    AddRow(name, text, help, [=]() -> absl::Status {
      int64_t number = 0;
      if (!text->empty() && !absl::SimpleAtoi(*text, &number)) return FlagError(name, *text, "a whole number");
      *value = text->empty() ? std::nullopt : std::optional<int64_t>(number);
      return absl::OkStatus();
    });
  }

  // One of several texts. The empty text may be one of them.
  void AddChoice(const std::string& name, std::string* value, const std::vector<std::string>& choices,
                 absl::string_view help) {
    AddRow(name, value, help, [=] { return CheckChoice(name, *value, choices); });
  }

  // Makes gflags know the flags, and adds their groups to `usage`. Call it once in a process.
  void Register(ProgramUsage& usage) {
    usage.source = __FILE__;
    usage.groups.insert(usage.groups.end(), groups_.begin(), groups_.end());
    for (const Row& row : rows_) {
      std::visit(
          [&](auto* variable) {
            auto* const initial = new std::decay_t<decltype(*variable)>(*variable);
            gflags::FlagRegisterer(Kept(row.name), Kept(row.help), __FILE__, variable, initial);
          },
          row.variable);
    }
  }

  // Sets the variables of optional numbers. InvalidArgument, naming the first flag whose value is not allowed, its
  // value and the expected values.
  absl::Status Check() const {
    for (const Row& row : rows_) LOCKSTEP_RETURN_IF_ERROR(row.check());
    return absl::OkStatus();
  }

 private:
  struct Row {
    std::string name;  // as gflags has it
    std::string help;
    std::variant<bool*, int32_t*, int64_t*, double*, std::string*> variable;
    std::function<absl::Status()> check;
  };

  void AddRow(const std::string& name, decltype(Row::variable) variable, absl::string_view help,
              std::function<absl::Status()> check) {
    rows_.push_back({absl::StrReplaceAll(name, {{"-", "_"}}), std::string(help), variable, std::move(check)});
    if (!groups_.empty()) groups_.back().flags.push_back(rows_.back().name);
  }

  // gflags keeps these pointers until the process ends.
  static const char* Kept(const std::string& text) {
    static auto* const texts = new std::deque<std::string>;
    return texts->emplace_back(text).c_str();
  }

  std::vector<Row> rows_;
  std::vector<FlagGroup> groups_;
  std::deque<std::string> texts_;  // of optional numbers. Their addresses do not change
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FLAG_TABLE_H_
