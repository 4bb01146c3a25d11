# The fused CUDA kernels. They need a torch with CUDA, whose own package finds nvcc and the toolkit.
# Elsewhere the composed operator serves tensors of a GPU.
set(PERFORMER_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (where torch has CUDA and nvcc is found), ON or OFF")
set_property(CACHE PERFORMER_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PERFORMER_CUDA_ARCHITECTURES "80;90;80-virtual" CACHE STRING
    "Architectures of the portable kernels: numbers, N-virtual for PTX, or native; Hopper's are sm_90a always")

set(PERFORMER_HAS_CUDA OFF)
if(PERFORMER_CUDA STREQUAL "AUTO" OR PERFORMER_CUDA)
  if((TARGET torch_cuda OR TORCH_CUDA_LIBRARIES) AND CMAKE_CUDA_COMPILER AND TARGET CUDA::cudart)
    set(PERFORMER_HAS_CUDA ON)
  elseif(NOT PERFORMER_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "PERFORMER_CUDA=ON needs a torch with CUDA, got torch ${PERFORMER_TORCH_VERSION}, and nvcc, got '${CMAKE_CUDA_COMPILER}'")
  endif()
endif()
message(STATUS "performer: CUDA kernels ${PERFORMER_HAS_CUDA} (PERFORMER_CUDA=${PERFORMER_CUDA})")

# -gencode words of `architectures`.
function(performer_gencode architectures result)
  set(words)
  foreach(architecture IN LISTS architectures)
    if(architecture STREQUAL "native")
      list(APPEND words -arch=native)
    elseif(architecture MATCHES "^([0-9]+a?)-virtual$")
      list(APPEND words "SHELL:-gencode arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1}")
    else()
      list(APPEND words "SHELL:-gencode arch=compute_${architecture},code=sm_${architecture}")
    endif()
  endforeach()
  set(${result} "${words}" PARENT_SCOPE)
endfunction()

# performer_cuda_kernels(PORTABLE|HOPPER <file>...), relative to the folder that calls: parts of the
# library that know no torch, nor its flags for nvcc.
function(performer_cuda_kernels path)
  set(CMAKE_CUDA_FLAGS "" PARENT_SCOPE)   # read at the end of the folder that calls
  unset(CMAKE_CUDA_STANDARD)   # CMake 3.25 does not know C++20 of nvcc 13: the option is given below
  set(architectures ${PERFORMER_CUDA_ARCHITECTURES})
  if(path STREQUAL "HOPPER")
    set(architectures 90a)   # wgmma and setmaxnreg exist there and nowhere else
  endif()
  performer_gencode("${architectures}" gencode)
  string(TOLOWER performer_${path}_kernels objects)
  add_library(${objects} OBJECT ${ARGN})
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${objects} PRIVATE -std=c++20 -O3 --expt-relaxed-constexpr -lineinfo ${gencode})
  set_target_properties(${objects} PROPERTIES
    CUDA_ARCHITECTURES OFF CUDA_SEPARABLE_COMPILATION OFF POSITION_INDEPENDENT_CODE ON)
  if(CCACHE)
    set_target_properties(${objects} PROPERTIES CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  target_sources(performer PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# Links the library with what the kernels' host code needs.
function(performer_link_cuda)
  # The runtime as torch has it: shared, the one that is loaded already.
  set_target_properties(performer PROPERTIES CUDA_RUNTIME_LIBRARY Shared CUDA_ARCHITECTURES OFF)
  target_link_libraries(performer PRIVATE $<BUILD_INTERFACE:CUDA::cudart>)
  # A compiler newer than the system's libstdc++ links what that lacks from an archive. Exported from
  # here those symbols would be taken for the system's own: a stream that prints a number crashes.
  target_link_options(performer PRIVATE
    -Wl,--exclude-libs,libstdc++.a:libstdc++_nonshared.a:libgcc.a:libgcc_eh.a)
endfunction()
