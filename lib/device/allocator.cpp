#include "device/allocator.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.hpp"

namespace tessera {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugeAlignment = std::size_t{2} << 20;

void* system_allocate(std::size_t bytes) {
  // Large blocks start on a huge page, so that the kernel can back them with huge pages.
  const std::size_t alignment = bytes >= 2 * kHugeAlignment ? kHugeAlignment : kAlignment;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

}  // namespace

std::size_t CachingAllocator::class_bytes(std::size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

CachingAllocator::~CachingAllocator() { release_cache(); }

void* CachingAllocator::allocate(std::size_t bytes, MemoryTag tag) {
  const std::size_t size = class_bytes(bytes);
  void* pointer = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = free_.find(size);
    if (found != free_.end() && !found->second.empty()) {
      pointer = found->second.back();
      found->second.pop_back();
    }
  }
  if (pointer == nullptr) pointer = system_allocate(size);
  if (pointer == nullptr) {
    release_cache();
    pointer = system_allocate(size);
  }
  if (pointer == nullptr) {
    fail(ErrorCode::kInternal, "out of memory: {} bytes for {}", bytes, to_string(tag));
  }
  if (poison_) std::memset(pointer, 0xff, size);  // 0xffff… is a NaN in every float type
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(tag);
  const auto count = static_cast<std::int64_t>(bytes);
  usage_.current[index] += count;
  usage_.peak[index] = std::max(usage_.peak[index], usage_.current[index]);
  usage_.current_total += count;
  usage_.peak_total = std::max(usage_.peak_total, usage_.current_total);
  return pointer;
}

void CachingAllocator::free(void* pointer, std::size_t bytes, MemoryTag tag) noexcept {
  const std::size_t size = class_bytes(bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<std::int64_t>(bytes);
    usage_.current[static_cast<std::size_t>(tag)] -= count;
    usage_.current_total -= count;
    if (caching_) {
      try {
        free_[size].push_back(pointer);
        return;
      } catch (const std::bad_alloc&) {
        // Too little memory even for the list: give the block back instead.
      }
    }
  }
  std::free(pointer);
}

MemoryUsage CachingAllocator::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  usage_.peak = usage_.current;
  usage_.peak_total = usage_.current_total;
}

void CachingAllocator::release_cache() {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) std::free(block);
    blocks.clear();
  }
}

}  // namespace tessera
