// Devices: where tensors live, which streams there are, and how many bytes are used for what.
#pragma once

#include <tessera/export.hpp>
#include <tessera/stream.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// What memory is used for. Every allocation carries one; the counts per purpose are part of the
/// metrics of a run.
enum class MemoryTag : std::uint8_t {
  kParams,       ///< parameters that this rank keeps (its shards, and whole ones it holds on to)
  kGathered,     ///< parameters gathered for use, released afterwards
  kGrads,        ///< accumulated gradients
  kOptimizer,    ///< optimizer state and master weights
  kActivations,  ///< values kept for backward, and intermediate results
  kComm,         ///< staging of collectives, gradients on their way
  kWorkspace,    ///< scratch of kernels
  kData,         ///< tokens and other input
  kCount,
};

/// "params", "gathered", "grads", "optimizer", "activations", "comm", "workspace", "data".
TESSERA_API std::string_view to_string(MemoryTag tag);

/// Bytes by purpose; index with static_cast<size_t>(MemoryTag).
struct MemoryUsage {
  std::array<std::int64_t, static_cast<std::size_t>(MemoryTag::kCount)> current{};
  std::array<std::int64_t, static_cast<std::size_t>(MemoryTag::kCount)> peak{};
  std::int64_t current_total = 0;
  std::int64_t peak_total = 0;
};

/// Kinds of device.
enum class DeviceType : std::uint8_t { kCPU, kCUDA };

/// Options of a CPU device.
struct CpuOptions {
  int threads = 1;  ///< threads that share one kernel, at least 1
  StreamMode stream_mode = StreamMode::kInline;
  bool caching_allocator = true;  ///< false: every free reaches the system (for ASan)
  bool poison = false;            ///< fill new memory with NaN patterns (for tests)
};

/// A device as one rank sees it. Outlives all tensors and streams made from it.
class TESSERA_API Device {
 public:
  virtual ~Device() = default;

  virtual DeviceType type() const = 0;
  /// Uninitialised memory aligned to 64 bytes or more; zero bytes give a valid, unusable pointer.
  /// Raises Error{kInternal} naming tag and size when there is none left.
  virtual void* allocate(std::size_t bytes, MemoryTag tag) = 0;
  virtual void free(void* pointer, std::size_t bytes, MemoryTag tag) noexcept = 0;
  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;
  /// Threads that one kernel may use.
  virtual int threads() const = 0;
  /// Calls body(begin, end) over parts of [0, count), in parallel where that pays: parts start at
  /// multiples of `grain`. Called from within tasks of a stream. Never nests.
  virtual void parallel_for(std::int64_t count, std::int64_t grain,
                            const std::function<void(std::int64_t, std::int64_t)>& body) = 0;

  virtual MemoryUsage memory_usage() const = 0;
  /// Sets every peak to the current value.
  virtual void reset_peak() = 0;
  /// Gives cached free memory back to the system.
  virtual void release_cache() = 0;
};

/// A CPU device. Each rank has its own, so that bytes and threads are counted per rank.
TESSERA_API std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

}  // namespace tessera
