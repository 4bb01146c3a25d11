#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

/// What the checkpoints of older programs lack, and what those programs acted by.
namespace performer::run {

/// Gives config.json of a checkpoint of that version each key that came later. A key that the
/// version had stays missing, for the reader to refuse.
void complete_config(nlohmann::ordered_json& config, std::int64_t version);

/// The same for trainer.json.
void complete_trainer(nlohmann::ordered_json& trainer, std::int64_t version);

}  // namespace performer::run
