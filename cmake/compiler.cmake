# Compiler settings of our own targets; torch's headers are system headers and stay silent.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The base folder makes paths relative, so that the wheel's build finds the objects of this one.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
endif()

# Headers cost each file seconds, its own lines tenths of a second.
option(PERFORMER_UNITY "Compile several files of a target as one" ON)
function(performer_unity)
  set_target_properties(${ARGN} PROPERTIES
    UNITY_BUILD ${PERFORMER_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

add_library(performer_flags INTERFACE)
target_compile_definitions(performer_flags INTERFACE FMT_HEADER_ONLY=1)   # torch brings fmt's headers alone
target_compile_options(performer_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wno-unused-parameter
  -fPIC               # not -fPIE for programs: library and tests share one precompiled header
  -Winvalid-pch       # a precompiled header that is passed over costs seconds per file
  -ffp-contract=off   # the random draw promises the same bits on every machine
  $<$<BOOL:${CCACHE}>:-fpch-preprocess>)
set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
if(PERFORMER_SANITIZE OR PERFORMER_FUZZ)
  # Lines for the stack traces, and no more: what a debugger wants takes a quarter of the build.
  target_compile_options(performer_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer -O1 -g1)
  target_link_options(performer_flags INTERFACE ${sanitizers})
endif()
if(PERFORMER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "PERFORMER_FUZZ needs clang++, got ${CMAKE_CXX_COMPILER}: use `cmake --preset fuzz`")
  endif()
  target_compile_options(performer_flags INTERFACE -g -fsanitize=fuzzer-no-link)
endif()
