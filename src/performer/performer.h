#pragma once

// The public operators of the library, in one include.
#include "performer/ops/attention_map.h"
#include "performer/ops/exact_attention.h"
#include "performer/ops/favor_attention.h"
#include "performer/ops/favor_state.h"
#include "performer/ops/feature_map.h"
#include "performer/ops/last_kernel.h"
#include "performer/ops/oprf.h"
#include "performer/ops/projection.h"
#include "performer/ops/projection_structured.h"
#include "performer/ops/quality.h"
