#pragma once

#include <memory>
#include <string>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"

namespace performer::data {

/// What a person gives a trained model to read, as the model reads it: the records of a FASTA file,
/// or for text the lines of a file, each a text of its own (blank ones are passed over; their ids
/// are line numbers). Files that end as FASTA does (.fasta, .fa, .faa, ...) are FASTA for imported
/// models, too. `path` may be packed by gzip, a pipe, or `-` or `stdin` for standard input.
/// kBadInput where there is no sequence; kUsage for models that read neither.
std::shared_ptr<const WholeSequences> open_sequences(const std::string& path,
                                                     const TokenSpace& space);

}  // namespace performer::data
