#include "comm/window.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tessera {

namespace {

constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

WindowLayout::WindowLayout(std::shared_ptr<SharedMemory> memory, int ranks,
                           std::int64_t window_bytes)
    : memory_(std::move(memory)), ranks_(ranks), half_bytes_(rounded_half(ranks, window_bytes)) {
  TESSERA_CHECK(memory_->bytes() >= bytes(ranks, window_bytes));
}

std::size_t WindowLayout::rounded_half(int ranks, std::int64_t window_bytes) {
  const std::size_t least = static_cast<std::size_t>(ranks) * 64;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(window_bytes, 0)) / 2;
  return round_up(std::max(wanted, least), 64);
}

std::size_t WindowLayout::counts_offset(int ranks) {
  return sizeof(Gate) + static_cast<std::size_t>(ranks) * sizeof(Slot);
}

std::size_t WindowLayout::windows_offset(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return round_up(counts_offset(ranks) + 4 * n * n * sizeof(std::int64_t), kPage);
}

std::size_t WindowLayout::bytes(int ranks, std::int64_t window_bytes) {
  return windows_offset(ranks) +
         round_up(2 * static_cast<std::size_t>(ranks) * rounded_half(ranks, window_bytes), kPage);
}

WindowLayout::Slot& WindowLayout::slot(int rank) const {
  return reinterpret_cast<Slot*>(memory_->data() + sizeof(Gate))[rank];
}

std::span<std::int64_t> WindowLayout::counts(int rank, std::uint64_t parity) const {
  const auto n = static_cast<std::size_t>(ranks_);
  auto* const first = reinterpret_cast<std::int64_t*>(memory_->data() + counts_offset(ranks_));
  return {first + (parity * n + static_cast<std::size_t>(rank)) * 2 * n, 2 * n};
}

std::byte* WindowLayout::half(int rank, std::uint64_t parity) const {
  return memory_->data() + windows_offset(ranks_) +
         (2 * static_cast<std::size_t>(rank) + parity) * half_bytes_;
}

}  // namespace tessera
