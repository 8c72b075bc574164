// The arithmetic of reductions over ranks, the same for every backend.
#pragma once

#include <tessera/comm.hpp>
#include <tessera/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// output[i] = the reduction of sources[0][i], sources[1][i], … along the fixed binary tree of rank
/// numbers: neighbours are paired level by level, an odd one out passes up unchanged, so 5 ranks
/// give
/// ((0+1)+(2+3))+4. FP32, BF16 and FP16 sums are formed in FP32 and rounded once; FP64 and integers
/// in their own type (integers wrap). kMax and kMin propagate NaN. `output` may be one of the
/// sources. The result does not depend on how a range is cut into calls.
void reduce_tree(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                 std::byte* output, std::int64_t elements);

/// True when reduce_tree() knows the type (all but the FP8 ones).
bool is_reducible(DType dtype);

/// "sum", "max" or "min".
std::string_view to_string(ReduceOp op);

}  // namespace tessera
