// Copying elements from a checkpoint into a tensor of another floating-point type.
#pragma once

#include <tessera/dtype.hpp>

#include <cstddef>

namespace tessera {

/// True when copy_elements() can make `to` from `from`: equal types, or any two of fp32, bf16,
/// fp16.
bool can_convert(DType from, DType to);

/// Copies `count` elements, converting them: to a smaller type rounded to nearest even. The source
/// may be unaligned.
void copy_elements(const std::byte* source, DType from, std::byte* destination, DType to,
                   std::size_t count);

}  // namespace tessera
