# The libraries that components use, each as a target lockstep::third_party_<name>; here and in an installed package. A target
# that the user's project has already, such as glog::glog of an add_subdirectory, is taken.

# Which targets of Abseil have the headers that Lockstep includes.
set(_lockstep_absl_targets
    btree cleanup core_headers flat_hash_map flat_hash_set function_ref inlined_vector memory span status statusor
    cord str_format strings synchronization time
)
# A component with one of these is left out where the library is missing.
set(_lockstep_optional curl_headers jemalloc leptonica libjpeg libpng sentencepiece)

macro(_lockstep_library name)
  set(problem)
  if(NOT TARGET lockstep::third_party_${name})
    add_library(lockstep::third_party_${name} INTERFACE IMPORTED ${_lockstep_global})
  endif()
  target_link_libraries(lockstep::third_party_${name} INTERFACE ${ARGN})
endmacro()

# Each of these ends with a target, or with `problem` set to what to do.

macro(_lockstep_find_absl)
  if(NOT TARGET absl::strings)
    find_package(absl CONFIG QUIET)
  endif()
  if(TARGET absl::strings)
    set(found)
    foreach(target IN LISTS _lockstep_absl_targets)
      if(TARGET absl::${target})
        list(APPEND found absl::${target})
      endif()
    endforeach()
    _lockstep_library(absl ${found})
  else()
    set(problem "Abseil was not found. Install it (Debian: apt-get install libabsl-dev), or make targets absl::... first.")
  endif()
endmacro()

macro(_lockstep_find_first name targets problem_text)
  set(problem "${problem_text}")
  foreach(target ${targets})
    if(problem AND TARGET ${target})
      _lockstep_library(${name} ${target})
    endif()
  endforeach()
endmacro()

macro(_lockstep_find_glog)
  if(NOT TARGET glog::glog AND NOT TARGET glog)
    find_package(glog CONFIG QUIET)
  endif()
  _lockstep_find_first(
    glog "glog::glog;glog"
    "glog was not found. Install it (Debian: apt-get install libgoogle-glog-dev), or make a target glog::glog first."
  )
endmacro()

macro(_lockstep_find_gflags)
  if(NOT TARGET gflags::gflags AND NOT TARGET gflags AND NOT TARGET gflags_shared)
    find_package(gflags CONFIG QUIET)
  endif()
  _lockstep_find_first(
    gflags "gflags::gflags;gflags;gflags::gflags_shared;gflags_shared"
    "gflags was not found. Install it (Debian: apt-get install libgflags-dev), or make a target gflags::gflags first."
  )
endmacro()

macro(_lockstep_find_nlohmann_json)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json CONFIG QUIET)
  endif()
  _lockstep_find_first(
    nlohmann_json nlohmann_json::nlohmann_json
    "nlohmann_json was not found. Install it (Debian: apt-get install nlohmann-json3-dev), or make a target nlohmann_json::nlohmann_json first."
  )
endmacro()

macro(_lockstep_find_zlib)
  if(NOT TARGET ZLIB::ZLIB)
    find_package(ZLIB QUIET)
  endif()
  _lockstep_find_first(zlib ZLIB::ZLIB "zlib was not found. Install it (Debian: apt-get install zlib1g-dev).")
endmacro()

macro(_lockstep_find_libcrypto)
  if(NOT TARGET OpenSSL::Crypto)
    find_package(OpenSSL QUIET)
  endif()
  _lockstep_find_first(libcrypto OpenSSL::Crypto "OpenSSL was not found. Install it (Debian: apt-get install libssl-dev).")
endmacro()

macro(_lockstep_find_libjpeg)
  if(NOT TARGET JPEG::JPEG)
    find_package(JPEG QUIET)
  endif()
  _lockstep_find_first(libjpeg JPEG::JPEG "libjpeg was not found. Install it (Debian: apt-get install libjpeg62-turbo-dev).")
endmacro()

macro(_lockstep_find_libpng)
  if(NOT TARGET PNG::PNG)
    find_package(PNG QUIET)
  endif()
  _lockstep_find_first(libpng PNG::PNG "libpng was not found. Install it (Debian: apt-get install libpng-dev).")
endmacro()

# A library without a CMake package.
macro(_lockstep_find_plain name header library problem_text)
  find_path(lockstep_${name}_include ${header})
  mark_as_advanced(lockstep_${name}_include)
  set(problem "${problem_text}")
  if(lockstep_${name}_include AND "${library}" STREQUAL "")
    _lockstep_library(${name})
  elseif(lockstep_${name}_include)
    find_library(lockstep_${name}_library ${library})
    mark_as_advanced(lockstep_${name}_library)
    if(lockstep_${name}_library)
      _lockstep_library(${name} ${lockstep_${name}_library})
    endif()
  endif()
  if(NOT problem)
    target_include_directories(lockstep::third_party_${name} INTERFACE ${lockstep_${name}_include})
  endif()
endmacro()

macro(_lockstep_find_sentencepiece)
  _lockstep_find_plain(
    sentencepiece sentencepiece_trainer.h sentencepiece_train
    "sentencepiece was not found. Install it (Debian: apt-get install libsentencepiece-dev)."
  )
  if(NOT problem)
    find_library(lockstep_sentencepiece_base_library sentencepiece REQUIRED)
    mark_as_advanced(lockstep_sentencepiece_base_library)
    target_link_libraries(lockstep::third_party_sentencepiece INTERFACE ${lockstep_sentencepiece_base_library})
  endif()
endmacro()

macro(_lockstep_find_leptonica)
  _lockstep_find_plain(
    leptonica leptonica/allheaders.h "lept;leptonica"
    "Leptonica was not found. Install it (Debian: apt-get install libleptonica-dev)."
  )
endmacro()

# Linked even though a program need not name anything of it.
macro(_lockstep_find_jemalloc)
  _lockstep_find_plain(
    jemalloc jemalloc/jemalloc.h jemalloc "jemalloc was not found. Install it (Debian: apt-get install libjemalloc-dev)."
  )
  if(NOT problem)
    target_link_options(
      lockstep::third_party_jemalloc INTERFACE
      "LINKER:--push-state,--no-as-needed,${lockstep_jemalloc_library},--pop-state"
    )
  endif()
endmacro()

# Headers only: the code of Gloo is inside libtorch_cpu, and a second copy must not be linked.
macro(_lockstep_find_gloo_headers)
  _lockstep_find_plain(
    gloo_headers gloo/rendezvous/store.h ""
    "Gloo's headers were not found. Install them (Debian: apt-get install libgloo-dev)."
  )
endmacro()

# Headers only: the launcher loads the library when a user asks for etcd.
macro(_lockstep_find_curl_headers)
  _lockstep_find_plain(
    curl_headers curl/curl.h "" "libcurl's headers were not found. Install them (Debian: apt-get install libcurl4-openssl-dev)."
  )
  if(NOT problem)
    target_link_libraries(lockstep::third_party_curl_headers INTERFACE ${CMAKE_DL_LIBS})
  endif()
endmacro()

# Makes the targets that a component uses. PROBLEM: empty, or what is missing and what to do. OPTIONAL: whether a build of
# everything goes on without it.
function(lockstep_component_third_party component problem_out optional_out)
  set(problems)
  set(optional ON)
  set(names ${lockstep_${component}_third_party})
  if(LOCKSTEP_CUDA)
    list(APPEND names ${lockstep_${component}_cuda_third_party})
  endif()
  foreach(name IN LISTS names)
    if(NOT TARGET lockstep::third_party_${name})
      set(problem)
      cmake_language(CALL _lockstep_find_${name})
      if(problem)
        list(APPEND problems "${problem}")
        if(NOT name IN_LIST _lockstep_optional)
          set(optional OFF)
        endif()
      endif()
    endif()
  endforeach()
  list(JOIN problems "\n" problems)
  set(${problem_out} "${problems}" PARENT_SCOPE)
  set(${optional_out} ${optional} PARENT_SCOPE)
endfunction()
