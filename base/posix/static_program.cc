#include "lockstep/base/posix/static_program.h"

#include <elf.h>
#include <link.h>

#include <algorithm>

namespace lockstep {
namespace {

// A program that names no loader (PT_INTERP) has none. The first object that is visited is the program itself.
int HasNoLoader(dl_phdr_info* program, size_t, void*) {
  return std::none_of(program->dlpi_phdr, program->dlpi_phdr + program->dlpi_phnum,
                      [](const auto& header) { return header.p_type == PT_INTERP; })
             ? 1
             : -1;
}

}  // namespace

bool IsStaticProgram() { return dl_iterate_phdr(HasNoLoader, nullptr) == 1; }

}  // namespace lockstep
