// How many routes one expert takes.
#pragma once

#include <cstdint>

namespace tessera::moe {

/// max(ceil(float32(tokens/experts) · float32(top_k · factor)), min_capacity), in FP32 as DeepSpeed
/// computes it (sharded_moe.py, _capacity): in FP64 0.6 % of the cases differ. `tokens` are those
/// of this rank's micro batch without padding. At least 1 where there are tokens, because 0 means
/// "no limit" to the operators.
std::int64_t expert_capacity(std::int64_t tokens, int experts, int top_k, double factor,
                             std::int64_t min_capacity);

}  // namespace tessera::moe
