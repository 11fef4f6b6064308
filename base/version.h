// The version of Lockstep with which a program is compiled. docs/releases.md says what a version promises.
//
// CMake reads the numbers from this file. Lint compares MODULE.bazel and CITATION.cff with them.

#ifndef LOCKSTEP_BASE_VERSION_H_
#define LOCKSTEP_BASE_VERSION_H_

#define LOCKSTEP_VERSION_MAJOR 0
#define LOCKSTEP_VERSION_MINOR 1
#define LOCKSTEP_VERSION_PATCH 0
#define LOCKSTEP_VERSION "0.1.0"

#endif  // LOCKSTEP_BASE_VERSION_H_
