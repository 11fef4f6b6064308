# Makes lockstep::<component> of what sources.cmake lists.

# Options of single sources, as their BUILD files have them. They are compiled without the precompiled header, which is
# made with other options.
function(lockstep_source_options options)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

function(_lockstep_precompile_headers target)
  if(NOT LOCKSTEP_PRECOMPILED_HEADERS)
    return()
  endif()
  if(NOT TARGET lockstep_libtorch_headers)
    set(empty ${CMAKE_CURRENT_BINARY_DIR}/libtorch_headers.cc)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(lockstep_libtorch_headers OBJECT EXCLUDE_FROM_ALL ${empty})
    target_precompile_headers(lockstep_libtorch_headers PRIVATE ${PROJECT_SOURCE_DIR}/tools/libtorch_headers.h)
    _lockstep_compile_as_ours(lockstep_libtorch_headers)
    target_link_libraries(lockstep_libtorch_headers PRIVATE lockstep::third_party_torch)
  endif()
  target_precompile_headers(${target} REUSE_FROM lockstep_libtorch_headers)
endfunction()

# What every source here is compiled with. The user's CMAKE_CXX_STANDARD wins if it is newer than C++17.
function(_lockstep_compile_as_ours target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON CXX_SCAN_FOR_MODULES OFF)
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-sign-compare -Wno-unused-parameter)
  endif()
endfunction()

# A library of sources, or the program that they are.
function(_lockstep_add_target target sources)
  if(lockstep_${component}_program)
    add_executable(${target} ${sources})
    set_target_properties(
      ${target} PROPERTIES OUTPUT_NAME ${lockstep_${component}_program} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
                           INSTALL_RPATH_USE_LINK_PATH ON
    )
  else()
    add_library(${target} STATIC ${sources})
  endif()
  _lockstep_compile_as_ours(${target})
endfunction()

function(_lockstep_add_component component)
  set(sources ${lockstep_${component}_sources})
  set(third_party ${lockstep_${component}_third_party})
  if(LOCKSTEP_CUDA)
    list(APPEND sources ${lockstep_${component}_cuda_sources})
    list(APPEND third_party ${lockstep_${component}_cuda_third_party})
  else()
    list(APPEND sources ${lockstep_${component}_cpu_sources})
  endif()
  list(TRANSFORM third_party PREPEND lockstep::third_party_)
  set(uses ${lockstep_${component}_components})
  list(TRANSFORM uses PREPEND lockstep::)

  set(target lockstep_${component})
  set(targets ${target})
  set(scope PUBLIC)
  if(NOT sources)
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
    target_compile_features(${target} INTERFACE cxx_std_17)
  elseif(lockstep_${component}_whole_archive)
    # The archive has what registers itself; whoever links the target links all of it.
    set(archive ${target}_archive)
    list(APPEND targets ${archive})
    _lockstep_add_target(${archive} "${sources}")
    # Exports do not rename what is in this expression, so its name is the same in the build and installed.
    add_library(lockstep::${component}_archive ALIAS ${archive})
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,lockstep::${component}_archive>)
  else()
    _lockstep_add_target(${target} "${sources}")
  endif()
  set(made ${target})
  if(TARGET ${target}_archive)
    set(made ${target}_archive)
    set_target_properties(${made} PROPERTIES EXPORT_NAME ${component}_archive)
  endif()
  target_include_directories(
    ${made} ${scope} $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  )
  target_link_libraries(${made} ${scope} ${uses} ${third_party})
  # A program's code is not independent of its position, as the precompiled header is.
  if("lockstep::third_party_torch" IN_LIST third_party AND sources AND NOT lockstep_${component}_program)
    _lockstep_precompile_headers(${made})
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${component})
  if(lockstep_${component}_program)
    add_executable(lockstep::${component} ALIAS ${target})
  else()
    add_library(lockstep::${component} ALIAS ${target})
  endif()
  if(NOT PROJECT_IS_TOP_LEVEL)
    # A project that contains this one compiles what it links.
    set_target_properties(${targets} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  set(lockstep_${component}_targets ${targets} PARENT_SCOPE)
endfunction()

# Sets lockstep_components: those that were made.
function(lockstep_add_components)
  set(requested ${LOCKSTEP_COMPONENTS})
  if(NOT requested)
    set(requested ${lockstep_all_components})
  endif()
  lockstep_closure(components ${requested})
  if(components_unknown)
    list(JOIN components_unknown ", " unknown)
    list(JOIN lockstep_all_components " " known)
    message(FATAL_ERROR "lockstep: LOCKSTEP_COMPONENTS names ${unknown}: expected some of ${known}")
  endif()

  # Headers are included as "lockstep/<folder>/<file>.h".
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/lockstep SYMBOLIC)

  # A consumer's directory sees what is found here.
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  set(made)
  foreach(component IN LISTS components)
    lockstep_component_third_party(${component} problem optional)
    foreach(used IN LISTS lockstep_${component}_components)
      if(NOT used IN_LIST made)
        string(APPEND problem "${used} is not built. ")
        set(optional ON)
      endif()
    endforeach()
    if(NOT problem)
      _lockstep_add_component(${component})
      set(lockstep_${component}_targets ${lockstep_${component}_targets} PARENT_SCOPE)
      list(APPEND made ${component})
    elseif(optional AND NOT LOCKSTEP_COMPONENTS)
      message(STATUS "lockstep: without ${component}: ${problem}")
    else()
      message(
        FATAL_ERROR
          "lockstep: component ${component}: ${problem}\n"
          "If you do not need ${component}, name the components that you need: -DLOCKSTEP_COMPONENTS=\"sampler;checkpoint\""
      )
    endif()
  endforeach()
  set(lockstep_components ${made} PARENT_SCOPE)
  list(JOIN made " " made)
  message(STATUS "lockstep: components ${made}")
endfunction()
