# Compiler settings of our own targets; torch's headers are system headers and stay silent.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The base folder makes paths relative, so that the wheel's build finds the objects of this one.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
endif()

add_library(performer_flags INTERFACE)
target_compile_definitions(performer_flags INTERFACE FMT_HEADER_ONLY=1)   # torch brings fmt's headers alone
target_compile_options(performer_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wno-unused-parameter
  -fPIC               # not -fPIE for programs: library and tests share one precompiled header
  -Winvalid-pch       # a precompiled header that is passed over costs seconds per file
  -ffp-contract=off   # the random draw promises the same bits on every machine
  $<$<BOOL:${CCACHE}>:-fpch-preprocess>)
if(PERFORMER_SANITIZE)
  target_compile_options(performer_flags INTERFACE
    -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
  target_link_options(performer_flags INTERFACE -fsanitize=address,undefined)
endif()
