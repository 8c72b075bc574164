// The allocator of a CPU device: blocks by size class, kept for reuse, counted by purpose.
#pragma once

#include <tessera/device.hpp>

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace tessera {

/// Rounds sizes up to a class (four classes per power of two) and keeps freed blocks per class, so
/// that a gather that comes back every layer costs no page faults. Thread-safe.
class CachingAllocator {
 public:
  CachingAllocator(bool caching, bool poison) : caching_(caching), poison_(poison) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(std::size_t bytes, MemoryTag tag);
  void free(void* pointer, std::size_t bytes, MemoryTag tag) noexcept;
  MemoryUsage usage() const;
  void reset_peak();
  void release_cache();

  /// Bytes of the class that `bytes` falls into.
  static std::size_t class_bytes(std::size_t bytes);

 private:
  const bool caching_;
  const bool poison_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  MemoryUsage usage_;
};

}  // namespace tessera
