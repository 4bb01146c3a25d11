# LibTorch comes from the torch wheel of a Python environment: the project's .venv, or the one that
# -DPython_EXECUTABLE (pip install) or CMAKE_PREFIX_PATH names.
if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH)
  if(NOT Python_EXECUTABLE)
    set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  endif()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "no torch in ${Python_EXECUTABLE}: run 'make setup', or pass -DCMAKE_PREFIX_PATH=<torch>/share/cmake")
  endif()
  list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
endif()
find_package(Torch REQUIRED)

# The full version ("2.13.0+cpu"): an extension library works with the torch it was built against alone.
set(PERFORMER_TORCH_VERSION ${Torch_VERSION})
if(EXISTS ${TORCH_INSTALL_PREFIX}/version.py)
  file(STRINGS ${TORCH_INSTALL_PREFIX}/version.py version_line REGEX "^__version__")
  string(REGEX REPLACE "^__version__ = '(.*)'$" "\\1" PERFORMER_TORCH_VERSION "${version_line}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TORCH_INSTALL_PREFIX}/version.py)
endif()
