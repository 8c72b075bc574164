// CRC32C (Castagnoli), the checksum of checkpoint files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// The checksum of `data` after that of what came before it (0 = nothing): crc(b, crc(a)) is the
/// checksum of a and b together. As in iSCSI (RFC 3720): reflected 0x1EDC6F41, inverted at both
/// ends; "123456789" gives 0xE3069283. Uses the processor's instruction where there is one.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before = 0);

/// The same without the instruction, for tests.
std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t before = 0);

}  // namespace tessera
