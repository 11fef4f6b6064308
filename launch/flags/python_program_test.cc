#include "lockstep/launch/flags/python_program.h"

#include <sys/stat.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

std::string NewFile(const std::string& name, const std::string& text, int mode) {
  const std::string path = testing::NewFolder() + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

TEST(CommandOf, StartsAScriptWithPython) {
  const std::string script = NewFile("train.py", "print(1)\n", 0644);
  EXPECT_THAT(CommandOf({script, "--epochs=1"}, {}, ""), ElementsAre("python3", "-u", script, "--epochs=1"));
  EXPECT_THAT(CommandOf({script}, {}, "/opt/python"), ElementsAre("/opt/python", "-u", script));
  EXPECT_THAT(CommandOf({script}, {{"no_python", {}}}, "/opt/python"), ElementsAre(script));
}

TEST(CommandOf, StartsAnythingElseAsItIs) {
  EXPECT_THAT(CommandOf({"./train", "a.py"}, {}, ""), ElementsAre("./train", "a.py"));
  EXPECT_THAT(CommandOf({"missing.py"}, {}, ""), ElementsAre("missing.py"));
}

TEST(CommandOf, LeavesAScriptThatNamesItsInterpreterToIt) {
  const std::string script = NewFile("train.py", "#!/usr/bin/env python3\n", 0755);
  EXPECT_THAT(CommandOf({script}, {}, ""), ElementsAre(script));
  EXPECT_THAT(CommandOf({script}, {}, "python3.11"), ElementsAre("python3.11", "-u", script));
  const std::string without = NewFile("train.py", "print(1)\n", 0755);
  EXPECT_THAT(CommandOf({without}, {}, ""), ElementsAre("python3", "-u", without));
}

TEST(CommandOf, StartsAModule) {
  EXPECT_THAT(CommandOf({"package.train", "--epochs=1"}, {{"module", {}}}, ""),
              ElementsAre("python3", "-u", "-m", "package.train", "--epochs=1"));
}

TEST(CommandOf, StartsAScriptOfAnyNameIfAskedTo) {
  const GivenFlags given = {{"run_path", {}}, {"no_python", {}}};
  EXPECT_THAT(CommandOf({"/abs/train"}, given, ""), ElementsAre("python3", "-u", "/abs/train"));
}

}  // namespace
}  // namespace lockstep::launch
