#include "lockstep/base/command_line.h"

#include <gflags/gflags.h>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/internal/flag_parser.h"
#include "lockstep/base/internal/usage_text.h"

DEFINE_int64(epochs, 5, "How often to go through the images.");
DEFINE_int32(batch_size, 64, "Images a step, over all ranks. A rank whose share is not whole takes the next number.");
DEFINE_double(weight_decay, 0.1, "SGD's weight decay.");
DEFINE_bool(resume, false, "Go on from the checkpoint.");
DEFINE_bool(pin, true, "Pin memory.");
DEFINE_string(dist_url, "", "Where the ranks meet.");

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.arguments = "[FOLDER]";
  usage.max_arguments = 1;
  usage.description = "Trains a network.\n";
  usage.groups = {{"Training", {"epochs", "batch_size", "weight_decay"}}};
  usage.aliases = {{"-b", "batch_size"}, {"-e", "resume"}, {"--wd", "weight_decay"}};
  return usage;
}

// Each test begins with the flags' defaults.
class CommandLine : public testing::Test {
 protected:
  absl::StatusOr<internal::ParsedArguments> Parse(const std::vector<std::string>& arguments) {
    return internal::ParseArguments(arguments, Usage());
  }
  std::vector<std::string> Arguments(const std::vector<std::string>& arguments) {
    const auto parsed = Parse(arguments);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() ? parsed->positional : std::vector<std::string>();
  }
  std::string Error(const std::vector<std::string>& arguments) {
    return std::string(Parse(arguments).status().message());
  }

 private:
  const gflags::FlagSaver saver_;
};

TEST_F(CommandLine, TakesDashesForUnderscoresAndValuesInTheNextArgument) {
  EXPECT_THAT(Arguments({"--batch-size", "256", "folder", "--dist_url=tcp://a-b:1", "-epochs=7"}),
              ElementsAre("folder"));
  EXPECT_EQ(FLAGS_batch_size, 256);
  EXPECT_EQ(FLAGS_dist_url, "tcp://a-b:1");
  EXPECT_EQ(FLAGS_epochs, 7);
}

TEST_F(CommandLine, TakesAnAliasForItsFlagHoweverItsValueFollows) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"-b", "8"}, {"-b8"}, {"-b=8"}, {"--batch-size=8"}}) {
    FLAGS_batch_size = 0;
    Arguments(arguments);
    EXPECT_EQ(FLAGS_batch_size, 8) << arguments[0];
  }
  Arguments({"--wd=1e-4", "-e"});
  EXPECT_EQ(FLAGS_weight_decay, 1e-4);
  EXPECT_TRUE(FLAGS_resume);
}

TEST_F(CommandLine, SetsAndClearsBoolFlagsWithoutTheNextArgument) {
  EXPECT_THAT(Arguments({"--resume", "folder", "--nopin"}), ElementsAre("folder"));
  EXPECT_TRUE(FLAGS_resume);
  EXPECT_FALSE(FLAGS_pin);
  Arguments({"--resume=false", "--pin=1"});
  EXPECT_FALSE(FLAGS_resume);
  EXPECT_TRUE(FLAGS_pin);
}

TEST_F(CommandLine, ASwitchIsAStringThatNeedsNoValue) {
  ProgramUsage usage = Usage();
  usage.switches = {"dist_url"};
  const auto parsed = internal::ParseArguments({"--dist_url", "folder"}, usage);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->positional, ElementsAre("folder"));
  EXPECT_EQ(FLAGS_dist_url, "true");
  ASSERT_TRUE(internal::ParseArguments({"--nodist-url"}, usage).ok());
  EXPECT_EQ(FLAGS_dist_url, "false");
  ASSERT_TRUE(internal::ParseArguments({"--dist_url=auto"}, usage).ok());
  EXPECT_EQ(FLAGS_dist_url, "auto");
}

TEST_F(CommandLine, TakesWhatIsNotAFlagAsAnArgument) {
  EXPECT_THAT(Arguments({"--", "--epochs"}), ElementsAre("--epochs"));
  EXPECT_THAT(Arguments({"-"}), ElementsAre("-"));
  EXPECT_THAT(Arguments({}), IsEmpty());
  EXPECT_THAT(Arguments({"--dist_url=", "--epochs", "-1"}), IsEmpty());
  EXPECT_EQ(FLAGS_epochs, -1);
}

TEST_F(CommandLine, SaysWhichFlagAnUnknownOneIsNearestTo) {
  EXPECT_EQ(Error({"--epoch=3"}), "unknown flag --epoch; did you mean --epochs? --help lists the flags");
  EXPECT_EQ(Error({"--bach-size", "3"}), "unknown flag --bach-size; did you mean --batch_size? --help lists the flags");
  EXPECT_EQ(Error({"--halp"}), "unknown flag --halp; did you mean --help? --help lists the flags");
  EXPECT_EQ(Error({"-epoch=3"}), "unknown flag -epoch; did you mean --epochs? --help lists the flags");
  EXPECT_EQ(Error({"-x"}), "unknown flag -x; --help lists the flags");
  EXPECT_EQ(Error({"--noepochs"}), "unknown flag --noepochs; did you mean --epochs? --help lists the flags");
}

TEST_F(CommandLine, SaysWhichFlagOfAGroupAnUnknownOneIsNearestTo) {
  ProgramUsage usage = Usage();
  usage.source = "";
  EXPECT_EQ(internal::ParseArguments({"--epoch=3"}, usage).status().message(),
            "unknown flag --epoch; did you mean --epochs? --help lists the flags");
}

TEST_F(CommandLine, SaysWhichProgramHasAnUnknownFlag) {
  ProgramUsage usage = Usage();
  usage.other_programs = {{"//tools:copy", {"recursive", "follow_links"}}};
  const auto error = [&](const std::string& argument) {
    return std::string(internal::ParseArguments({argument}, usage).status().message());
  };
  EXPECT_EQ(error("--recursive"), "unknown flag --recursive; //tools:copy has it; --help lists the flags");
  EXPECT_EQ(error("--norecursive"), "unknown flag --norecursive; //tools:copy has it; --help lists the flags");
  EXPECT_EQ(error("--follow-links=1"), "unknown flag --follow-links; //tools:copy has it; --help lists the flags");
  EXPECT_EQ(error("--copy"), "unknown flag --copy; --help lists the flags");
}

TEST_F(CommandLine, RefusesTheFlagsOfGflags) {
  for (const char* const flag : {"--flagfile=/etc/passwd", "--fromenv=x", "--undefok=y", "--version", "--helpxml"}) {
    EXPECT_THAT(Error({flag}), HasSubstr("unknown flag")) << flag;
  }
}

TEST_F(CommandLine, SaysWhatAValueMustBe) {
  EXPECT_EQ(Error({"--epochs=many"}), "--epochs=many: expected a whole number of at most 64 bits");
  EXPECT_EQ(Error({"-b", "5000000000"}), "-b=5000000000: expected a whole number of at most 32 bits");
  EXPECT_EQ(Error({"--wd=small"}), "--wd=small: expected a number");
  EXPECT_EQ(Error({"--resume=maybe"}), "--resume=maybe: expected true or false");
  EXPECT_EQ(Error({"--epochs="}), "--epochs=: expected a whole number of at most 64 bits");
}

TEST_F(CommandLine, ErrorsEscapeControlCharacters) {
  EXPECT_EQ(Error({"--epochs=5\a"}), "--epochs=5\\x07: expected a whole number of at most 64 bits");
  EXPECT_EQ(Error({"--no\x1b[31mred\n=3"}), "unknown flag --no\\x1b[31mred\\n; --help lists the flags");
  EXPECT_EQ(Error({"a", "b\n"}), "unexpected argument \"b\\n\"; --help lists the flags");
}

TEST_F(CommandLine, RefusesAMissingValueAndAnArgumentTooMany) {
  EXPECT_EQ(Error({"--epochs"}), "--epochs needs a value; --help lists the flags");
  EXPECT_EQ(Error({"--dist_url", "--resume"}), "--dist_url needs a value; --help lists the flags");
  EXPECT_EQ(Error({"a", "b"}), "unexpected argument \"b\"; --help lists the flags");
  EXPECT_EQ(Error({"a", "--", "-b"}), "unexpected argument \"-b\"; --help lists the flags");
}

TEST_F(CommandLine, KnowsThreeSpellingsOfHelp) {
  for (const char* const help : {"-h", "-help", "--help"}) {
    const auto parsed = Parse({help, "--unknown"});
    EXPECT_TRUE(parsed.ok() && parsed->help) << help;
  }
}

TEST_F(CommandLine, UsageListsTheProgramsOwnFlagsByGroup) {
  EXPECT_EQ(internal::UsageText("train", Usage(), 80),
            R"(usage: train [flags] [FOLDER]

Trains a network.

Training:
  --epochs=N              How often to go through the images. [5]
  -b, --batch_size=N      Images a step, over all ranks. A rank whose share is
                          not whole takes the next number. [64]
  --wd, --weight_decay=X  SGD's weight decay. [0.1]

Other flags:
  --dist_url=TEXT         Where the ranks meet.
  --pin                   Pin memory. [true]
  -e, --resume            Go on from the checkpoint.
  -h, --help              Print this text and exit.
)");
}

TEST_F(CommandLine, UsageIsAsWideAsTheTerminal) {
  for (const size_t width : {60, 80, 120}) {
    for (const absl::string_view line : absl::StrSplit(internal::UsageText("train", Usage(), width), '\n')) {
      EXPECT_LE(line.size(), width) << line;
    }
  }
}

TEST(CommandLineDeathTest, ExitsWith0AfterHelpAndWith2AfterAMistake) {
  const auto parse = [](const char* argument) {
    std::string program = "/bin/train", given = argument;
    char* argv[] = {program.data(), given.data()};
    ParseCommandLine(2, argv, Usage());
  };
  EXPECT_EXIT(parse("--help"), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(parse("--epoch"), testing::ExitedWithCode(2), "^train: unknown flag --epoch; did you mean --epochs");
}

}  // namespace
}  // namespace lockstep
