#include "lockstep/base/posix/static_program.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// tools/release/test runs a program that is static.
TEST(IsStaticProgram, ThisOneHasALoader) { EXPECT_FALSE(IsStaticProgram()); }

}  // namespace
}  // namespace lockstep
