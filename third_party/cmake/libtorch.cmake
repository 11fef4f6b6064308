# LibTorch as lockstep::third_party_torch: what a CPU program needs, also from a LibTorch with CUDA; here and in an installed
# package. The CMake package that comes with LibTorch is not used: its targets link CUDA into every program.

# Half of protobuf, fmt and others stand beside these: they would come before a user's own.
set(_lockstep_torch_included ATen c10 caffe2 torch)
set(_lockstep_torch_oldest 2.7)

set(LOCKSTEP_LIBTORCH "" CACHE PATH "An unpacked LibTorch, or the torch folder of a Python")

# The folder with LibTorch's include and lib: lockstep_torch. Else `problem`.
macro(_lockstep_locate_torch)
  set(lockstep_torch)
  set(problem)
  if(LOCKSTEP_LIBTORCH OR NOT "$ENV{LOCKSTEP_LIBTORCH}" STREQUAL "")
    set(lockstep_torch "${LOCKSTEP_LIBTORCH}")
    if(NOT lockstep_torch)
      set(lockstep_torch "$ENV{LOCKSTEP_LIBTORCH}")
    endif()
    get_filename_component(lockstep_torch "${lockstep_torch}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
    set(problem
        "LOCKSTEP_LIBTORCH=${lockstep_torch} has no include/torch/csrc/api/include/torch/torch.h: name an unpacked LibTorch or the torch folder of a Python."
    )
  else()
    # The one that the user's project has found, if it has.
    if(TARGET torch_cpu)
      # Of any build type: Debian's is None.
      get_target_property(lockstep_torch torch_cpu LOCATION)
      # Above lib, or above Debian's lib/x86_64-linux-gnu.
      foreach(up RANGE 2)
        if(NOT EXISTS "${lockstep_torch}/include/torch")
          get_filename_component(lockstep_torch "${lockstep_torch}" DIRECTORY)
        endif()
      endforeach()
    endif()
    if(NOT lockstep_torch)
      set(python "$ENV{LOCKSTEP_PYTHON}")
      if(NOT python)
        set(python python3)
      endif()
      execute_process(
        COMMAND "${python}" -c "import importlib.util as u; s = u.find_spec('torch'); print(*(s.submodule_search_locations[:1] if s else []))"
        OUTPUT_VARIABLE lockstep_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
      )
    endif()
    string(CONCAT problem
      "LibTorch was not found: set LOCKSTEP_LIBTORCH (-D or environment) to an unpacked LibTorch or to the torch folder of a Python. "
      "A checkout of Lockstep can fetch the tested one: \"python3 <lockstep>/third_party/libtorch/fetch_torch.py cpu\" makes include and lib "
      "in the current folder; Debian's liblockstep-dev has \"lockstep-fetch-libtorch <folder>\" for that. Name that folder."
    )
  endif()
  if(lockstep_torch AND EXISTS "${lockstep_torch}/include/torch/csrc/api/include/torch/torch.h")
    set(problem)
  endif()
endmacro()

# lockstep_torch_version, such as 2.11.0; from the headers.
macro(_lockstep_read_torch_version)
  set(lockstep_torch_version)
  foreach(header headeronly csrc/api/include/torch)
    if(NOT lockstep_torch_version AND EXISTS "${lockstep_torch}/include/torch/${header}/version.h")
      file(STRINGS "${lockstep_torch}/include/torch/${header}/version.h" numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM numbers REPLACE "[^0-9]*([0-9]+).*" "\\1")
      list(JOIN numbers "." lockstep_torch_version)
    endif()
  endforeach()
endmacro()

# One shared library of LibTorch as an imported target.
function(_lockstep_torch_library name required_for problem_out)
  file(GLOB folders "${lockstep_torch}/lib" "${lockstep_torch}/lib/*-linux-gnu")
  find_library(found ${name} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
  if(NOT found)
    set(${problem_out} "${lockstep_torch}/lib has no lib${name}.so: ${required_for}" PARENT_SCOPE)
    return()
  endif()
  add_library(lockstep::third_party_lib${name} SHARED IMPORTED ${_lockstep_global})
  set_target_properties(lockstep::third_party_lib${name} PROPERTIES IMPORTED_LOCATION "${found}")
endfunction()

macro(_lockstep_find_torch)
  _lockstep_locate_torch()
  if(NOT problem)
    _lockstep_read_torch_version()
    if(NOT lockstep_torch_version)
      set(problem "${lockstep_torch} has no version.h that names its version: Lockstep needs LibTorch ${_lockstep_torch_oldest} or newer.")
    elseif(lockstep_torch_version VERSION_LESS _lockstep_torch_oldest)
      set(problem
          "${lockstep_torch} is LibTorch ${lockstep_torch_version}: Lockstep needs ${_lockstep_torch_oldest} or newer."
      )
    elseif(LOCKSTEP_BUILT_WITH_LIBTORCH AND NOT lockstep_torch_version VERSION_EQUAL LOCKSTEP_BUILT_WITH_LIBTORCH)
      set(problem
          "${lockstep_torch} is LibTorch ${lockstep_torch_version}: this Lockstep was built with ${LOCKSTEP_BUILT_WITH_LIBTORCH}. Name that one, or build Lockstep with yours."
      )
    endif()
  endif()
  if(NOT problem)
    foreach(library torch_cpu c10)
      _lockstep_torch_library(${library} "name the folder that holds include and lib." problem)
    endforeach()
  endif()
  if(NOT problem)
    get_target_property(found lockstep::third_party_libc10 IMPORTED_LOCATION)
    file(STRINGS "${found}" new_abi REGEX "NSt7__cxx1112basic_string" LIMIT_COUNT 1)
    if(NOT new_abi)
      set(problem
          "${found} is built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0): get the LibTorch that is called cxx11 ABI."
      )
    endif()
  endif()
  if(NOT problem)
    _lockstep_make_torch_target()
  endif()
endmacro()

function(_lockstep_make_torch_target)
  message(STATUS "lockstep: LibTorch ${lockstep_torch_version} in ${lockstep_torch}")
  set(include "${CMAKE_BINARY_DIR}/lockstep_libtorch/include")
  file(REMOVE_RECURSE "${include}")
  file(MAKE_DIRECTORY "${include}")
  foreach(folder IN LISTS _lockstep_torch_included)
    if(EXISTS "${lockstep_torch}/include/${folder}")
      file(CREATE_LINK "${lockstep_torch}/include/${folder}" "${include}/${folder}" SYMBOLIC)
    endif()
  endforeach()
  find_package(Threads QUIET REQUIRED)
  _lockstep_library(torch lockstep::third_party_libtorch_cpu lockstep::third_party_libc10 Threads::Threads)
  target_include_directories(lockstep::third_party_torch INTERFACE "${include}" "${include}/torch/csrc/api/include")
  target_compile_definitions(lockstep::third_party_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # A program that names nothing of libtorch_cpu needs its operators all the same.
  get_target_property(library lockstep::third_party_libtorch_cpu IMPORTED_LOCATION)
  target_link_options(lockstep::third_party_torch INTERFACE "LINKER:--push-state,--no-as-needed,${library},--pop-state")
  # Debian's has Gloo as a library of its own.
  if(library MATCHES "/lib/[^/]*-linux-gnu/")
    find_library(gloo gloo NO_CACHE)
    if(gloo)
      target_link_libraries(lockstep::third_party_torch INTERFACE "${gloo}")
    endif()
  endif()
  if(lockstep_torch_version VERSION_GREATER_EQUAL 2.14)
    target_compile_features(lockstep::third_party_torch INTERFACE cxx_std_20)
  endif()
  set_property(TARGET lockstep::third_party_torch PROPERTY lockstep_version "${lockstep_torch_version}")
  set_property(TARGET lockstep::third_party_torch PROPERTY lockstep_folder "${lockstep_torch}")
endfunction()

# LibTorch's CUDA part, and the headers of CUDA and NCCL.
macro(_lockstep_find_torch_cuda)
  get_property(lockstep_torch TARGET lockstep::third_party_torch PROPERTY lockstep_folder)
  foreach(library torch_cuda c10_cuda)
    if(NOT problem)
      _lockstep_torch_library(${library} "it is LibTorch for CPUs only. Name one with CUDA, or build without LOCKSTEP_CUDA." problem)
    endif()
  endforeach()
  file(GLOB folders "${lockstep_torch}/../nvidia/*/include" "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
  find_path(lockstep_cuda_include cuda_runtime_api.h PATHS ${folders} NO_DEFAULT_PATH)
  find_path(lockstep_nccl_include nccl.h PATHS ${folders})
  mark_as_advanced(lockstep_cuda_include lockstep_nccl_include)
  foreach(header cuda nccl)
    if(NOT problem AND NOT lockstep_${header}_include)
      set(problem "The headers of ${header} were not found: install them, or set lockstep_${header}_include to their folder.")
    endif()
  endforeach()
  if(NOT problem)
    _lockstep_library(torch_cuda lockstep::third_party_libtorch_cuda lockstep::third_party_libc10_cuda lockstep::third_party_torch)
    target_include_directories(lockstep::third_party_torch_cuda INTERFACE ${lockstep_cuda_include} ${lockstep_nccl_include})
    get_target_property(library lockstep::third_party_libtorch_cuda IMPORTED_LOCATION)
    target_link_options(lockstep::third_party_torch_cuda INTERFACE "LINKER:--push-state,--no-as-needed,${library},--pop-state")
  endif()
endmacro()
