# Installs components, headers and the CMake package `lockstep`, which finds LibTorch and the other libraries again where it
# is used: nothing here is a path of this machine.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

set(_lockstep_lists "set(lockstep_all_components ${lockstep_components})\n")
foreach(component IN LISTS lockstep_components)
  # Each is an export of its own, so that a user of one needs the libraries of that one only.
  install(TARGETS ${lockstep_${component}_targets} EXPORT lockstep_${component})
  install(EXPORT lockstep_${component} NAMESPACE lockstep:: FILE lockstep_${component}.cmake DESTINATION ${package})
  if(NOT lockstep_${component}_program)
    set(third_party ${lockstep_${component}_third_party})
    if(LOCKSTEP_CUDA)
      list(APPEND third_party ${lockstep_${component}_cuda_third_party})
    endif()
    string(APPEND _lockstep_lists "set(lockstep_${component}_components ${lockstep_${component}_components})\n")
    string(APPEND _lockstep_lists "set(lockstep_${component}_third_party ${third_party})\n")
    foreach(header IN LISTS lockstep_${component}_headers)
      get_filename_component(folder ${header} DIRECTORY)
      install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder})
    endforeach()
  endif()
endforeach()

set(_lockstep_torch_version)
if(TARGET lockstep::third_party_torch)
  get_property(_lockstep_torch_version TARGET lockstep::third_party_torch PROPERTY lockstep_version)
endif()
configure_package_config_file(
  cmake/lockstepConfig.cmake.in lockstepConfig.cmake
  INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO
)
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake
        cmake/closure.cmake third_party/cmake/libraries.cmake third_party/cmake/libtorch.cmake
  DESTINATION ${package}
)
