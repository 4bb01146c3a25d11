# The fuzz targets, and what they read files with. The fuzzer's build compiles these sources, and
# corpus_test links the same ones and no more: one that is missing here breaks the usual build too.
set(fuzz_targets fasta json pds png safetensors toml tsv)
set(fuzzed_sources
  core/config
  core/config_toml
  core/file
  core/json
  core/json_view
  core/log
  core/nearest
  core/random_access_file
  core/safe_text
  core/safetensors
  core/safetensors_header
  core/sha256
  core/temporary_file
  core/toml_guard
  data/alphabet
  data/byte_source
  data/encoding
  data/fasta
  data/fasta_counts
  data/file_kind
  data/image_file
  data/pds_file
  data/sequence_source
  data/tsv
  train/checkpoint_manifest
)
