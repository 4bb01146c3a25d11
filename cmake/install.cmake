# What is installed: library, headers and CMake package into a prefix, or, for a wheel, the library
# inside the Python package.

# Python reads this before it loads the library.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/performer_build.json @ONLY
  CONTENT [[{"version": "@PROJECT_VERSION@", "torch": "@PERFORMER_TORCH_VERSION@"}
]])

if(SKBUILD)
  set_target_properties(performer PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib")
  install(TARGETS performer LIBRARY DESTINATION performer)
  install(FILES ${PROJECT_BINARY_DIR}/performer_build.json DESTINATION performer)
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/performer)
set_target_properties(performer PROPERTIES INSTALL_RPATH ${TORCH_INSTALL_PREFIX}/lib)
install(TARGETS performer EXPORT performer LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET performer_program)
  set_target_properties(performer_program PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${TORCH_INSTALL_PREFIX}/lib")
  install(TARGETS performer_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # `performer bench attention` looks for it in ../share of the program's folder.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/bench/performer_bench DESTINATION share/performer/bench
    FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
  install(FILES ${PROJECT_SOURCE_DIR}/bench/attention.py DESTINATION share/performer/bench)
endif()
if(TARGET performer_pieces)   # beside the library, which looks for it there
  install(TARGETS performer_pieces RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# Public headers: the operators', the models', and what those include. All others stay inside.
foreach(header IN ITEMS
    performer.h
    core/config.h
    ops/analysis/attention_map.h
    ops/analysis/quality.h
    ops/exact/attention.h
    ops/favor/attention.h
    ops/favor/merge.h
    ops/favor/state.h
    ops/favor/step.h
    ops/feature_map.h
    ops/last_kernel.h
    ops/projection/oprf.h
    ops/projection/projection.h
    ops/projection/structured.h
    ops/rotary/rotary.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/src/performer/${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/performer/${folder})
endforeach()
if(NOT PERFORMER_OPS_ONLY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/performer/models
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/performer FILES_MATCHING PATTERN "*.h")
endif()
install(EXPORT performer NAMESPACE performer:: FILE performerTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/performerConfig.cmake.in
  ${PROJECT_BINARY_DIR}/performerConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/performerConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/performerConfig.cmake
  ${PROJECT_BINARY_DIR}/performerConfigVersion.cmake ${PROJECT_BINARY_DIR}/performer_build.json
  DESTINATION ${package_dir})
