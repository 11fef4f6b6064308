# find_package(lockstep CONFIG REQUIRED COMPONENTS ddp comm_cpu), with Debian's package liblockstep-dev: the components, and those
# that they use, become a part of this build.
if(CMAKE_VERSION VERSION_LESS 3.24)
  set(lockstep_FOUND FALSE)
  set(lockstep_NOT_FOUND_MESSAGE "lockstep needs CMake 3.24 or newer; this is ${CMAKE_VERSION}.")
  return()
endif()

if(NOT TARGET lockstep::base)
  set(LOCKSTEP_COMPONENTS ${lockstep_FIND_COMPONENTS})
  add_subdirectory("${CMAKE_CURRENT_LIST_DIR}/../../../src/lockstep" "${CMAKE_BINARY_DIR}/lockstep" EXCLUDE_FROM_ALL)
endif()
foreach(_lockstep_component IN LISTS lockstep_FIND_COMPONENTS)
  if(TARGET lockstep::${_lockstep_component})
    set(lockstep_${_lockstep_component}_FOUND TRUE)
  elseif(lockstep_FIND_REQUIRED_${_lockstep_component})
    set(lockstep_FOUND FALSE)
    set(lockstep_NOT_FOUND_MESSAGE
        "An earlier find_package(lockstep) left out component ${_lockstep_component}: name all components in the first one."
    )
  endif()
endforeach()
