# What the command line program needs beside torch, all from the system's packages. Operators alone
# (PERFORMER_OPS_ONLY, the wheel) need none of it.
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
find_path(NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(UTF8PROC libutf8proc.a REQUIRED)   # inside of libperformer.so, which hides its names
find_path(SENTENCEPIECE_INCLUDE sentencepiece_trainer.h REQUIRED)
find_library(SENTENCEPIECE sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN sentencepiece_train REQUIRED)

add_library(performer_dependencies INTERFACE)
target_include_directories(performer_dependencies SYSTEM INTERFACE
  ${CLI11_INCLUDE} ${TOMLPLUSPLUS_INCLUDE} ${NLOHMANN_INCLUDE} ${UTF8PROC_INCLUDE})
target_link_libraries(performer_dependencies INTERFACE ZLIB::ZLIB PNG::PNG OpenSSL::Crypto ${UTF8PROC})

# Never loaded beside torch: performer-pieces alone links it.
add_library(performer_sentencepiece INTERFACE)
target_include_directories(performer_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE})
target_link_libraries(performer_sentencepiece INTERFACE ${SENTENCEPIECE} ${SENTENCEPIECE_TRAIN})
