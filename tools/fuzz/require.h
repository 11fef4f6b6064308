// Conditions that must hold for every input of a fuzzer.

#ifndef LOCKSTEP_TOOLS_FUZZ_REQUIRE_H_
#define LOCKSTEP_TOOLS_FUZZ_REQUIRE_H_

#include <cstdio>
#include <cstdlib>

namespace lockstep::fuzz {

// Ends the program unless `holds`. The fuzzer then reports the input.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_TOOLS_FUZZ_REQUIRE_H_
