#pragma once

// The public operators of the library, in one include.
#include "performer/ops/analysis/attention_map.h"
#include "performer/ops/analysis/quality.h"
#include "performer/ops/exact/attention.h"
#include "performer/ops/favor/attention.h"
#include "performer/ops/favor/merge.h"
#include "performer/ops/favor/state.h"
#include "performer/ops/favor/step.h"
#include "performer/ops/feature_map.h"
#include "performer/ops/last_kernel.h"
#include "performer/ops/projection/oprf.h"
#include "performer/ops/projection/projection.h"
#include "performer/ops/projection/structured.h"
