#include "performer/models/attention_core.h"

#include <ATen/OpMathType.h>

#include "performer/core/error.h"
#include "performer/models/exact_core.h"
#include "performer/models/favor_core.h"
#include "performer/models/identity_core.h"
#include "performer/models/linformer_core.h"
#include "performer/models/lsh_core.h"
#include "performer/models/mean_core.h"

namespace performer::models {

at::ScalarType sum_type(const Tensor& t) { return at::toOpMathType(t.scalar_type()); }

std::shared_ptr<AttentionCore> make_attention_core(const ModelConfig& config, std::int64_t layer) {
  const std::string& kind = config.kind_of(layer);
  if (kind == "favor") return std::make_shared<FavorCore>(config, layer);
  if (kind == "linear") return std::make_shared<FavorCore>(linear_transformer(config), layer);
  if (kind == "exact") return std::make_shared<ExactCore>(config);
  if (kind == "linformer") return std::make_shared<LinformerCore>(config, layer);
  if (kind == "lsh") return std::make_shared<LshCore>(config, layer);
  if (kind == "identity") return std::make_shared<IdentityCore>();
  if (kind == "mean") return std::make_shared<MeanCore>(config);
  fail(ExitCode::kUsage, "model.attention.kind: unknown value \"{}\"", kind);
}

}  // namespace performer::models
