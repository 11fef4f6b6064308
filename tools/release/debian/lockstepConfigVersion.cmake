# The same rule as SameMinorVersion's of an installed Lockstep: docs/releases.md.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../../src/lockstep/base/version.h" PACKAGE_VERSION REGEX "^#define LOCKSTEP_VERSION ")
string(REGEX MATCH "[0-9.]+" PACKAGE_VERSION "${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _lockstep_minor "${PACKAGE_VERSION}")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
set(PACKAGE_VERSION_EXACT FALSE)
if("${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}" STREQUAL _lockstep_minor AND NOT PACKAGE_FIND_VERSION VERSION_GREATER
                                                                                             PACKAGE_VERSION
)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
