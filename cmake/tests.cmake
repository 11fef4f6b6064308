# A few of the tests, for CTest; Bazel runs all. They are started where Bazel starts them: at the top of the tree.
enable_testing()
find_package(GTest QUIET)
if(NOT TARGET GTest::gmock_main)
  message(STATUS "lockstep: without tests: GoogleTest was not found (Debian: apt-get install libgtest-dev libgmock-dev)")
  return()
endif()

# The first test that uses LibTorch, or Abseil only, makes the headers that the others use.
function(_lockstep_precompile_test_headers test)
  if(NOT LOCKSTEP_PRECOMPILED_HEADERS)
    return()
  elseif(torch IN_LIST ${test}_third_party)
    set(headers libtorch_test_headers)
  elseif(absl IN_LIST ${test}_third_party)
    set(headers abseil_test_headers)
  else()
    return()
  endif()
  get_property(first GLOBAL PROPERTY lockstep_${headers})
  if(first)
    target_precompile_headers(${test} REUSE_FROM ${first})
  else()
    target_precompile_headers(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tools/${headers}.h)
    set_property(GLOBAL PROPERTY lockstep_${headers} ${test})
  endif()
endfunction()

foreach(test IN LISTS lockstep_all_tests)
  set(name lockstep_test_${test})
  set(missing ${${name}_components})
  list(REMOVE_ITEM missing ${lockstep_components})
  if(missing)
    continue()
  endif()
  set(libraries ${${name}_components})
  list(TRANSFORM libraries PREPEND lockstep::)
  set(third_party ${${name}_third_party})
  list(TRANSFORM third_party PREPEND lockstep::third_party_)
  add_executable(${name} ${${name}_sources})
  # Tests look at their program's name.
  set_target_properties(
    ${name} PROPERTIES OUTPUT_NAME ${${name}_program} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${test}
  )
  _lockstep_compile_as_ours(${name})
  target_compile_options(${name} PRIVATE -O0 -U_FORTIFY_SOURCE)
  target_link_libraries(${name} PRIVATE ${libraries} ${third_party} GTest::gmock_main GTest::gmock GTest::gtest)
  _lockstep_precompile_test_headers(${name})
  # Each run has an empty folder for its files, as with Bazel.
  set(files ${PROJECT_BINARY_DIR}/tests/${test}/files)
  add_test(
    NAME ${test} COMMAND sh -c "rm -rf \"$TEST_TMPDIR\" && mkdir \"$TEST_TMPDIR\" && exec \"$0\"" $<TARGET_FILE:${name}>
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  )
  set_tests_properties(${test} PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;TEST_TMPDIR=${files}" TIMEOUT 120)
endforeach()
