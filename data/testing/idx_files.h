// Small IDX files for tests.

#ifndef LOCKSTEP_DATA_TESTING_IDX_FILES_H_
#define LOCKSTEP_DATA_TESTING_IDX_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data::testing {

// An IDX file of unsigned bytes: its header for `sizes`, then `values`, however many those are.
std::string Idx(const std::vector<uint32_t>& sizes, const std::vector<uint8_t>& values);

// `bytes` in gzip.
std::string Gzip(const std::string& bytes);

// Writes `bytes` to the file `name` (which may include folders) in the running test's folder, and returns its path.
std::string WriteFile(const std::string& name, const std::string& bytes);

// The folder of WriteFile(), a different one for each test.
std::string TestFolder();

}  // namespace lockstep::data::testing

#endif  // LOCKSTEP_DATA_TESTING_IDX_FILES_H_
