#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "device/allocator.hpp"
#include "device/stream.hpp"
#include "device/thread_pool.hpp"

namespace tessera {

std::string_view to_string(MemoryTag tag) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(MemoryTag::kCount)> kNames{
      "params", "gathered", "grads", "optimizer", "activations", "comm", "workspace", "data"};
  const auto index = static_cast<std::size_t>(tag);
  return index < kNames.size() ? kNames[index] : "unknown";
}

namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : options_(options),
        allocator_(options.caching_allocator, options.poison),
        pool_(std::max(1, options.threads)) {}

  DeviceType type() const override { return DeviceType::kCPU; }
  void* allocate(std::size_t bytes, MemoryTag tag) override {
    return allocator_.allocate(bytes, tag);
  }
  void free(void* pointer, std::size_t bytes, MemoryTag tag) noexcept override {
    allocator_.free(pointer, bytes, tag);
  }
  std::unique_ptr<Stream> make_stream(std::string) override {
    return make_cpu_stream(options_.stream_mode);
  }
  int threads() const override { return pool_.threads(); }
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override {
    pool_.parallel_for(count, grain, body);
  }
  MemoryUsage memory_usage() const override { return allocator_.usage(); }
  void reset_peak() override { allocator_.reset_peak(); }
  void release_cache() override { allocator_.release_cache(); }

 private:
  CpuOptions options_;
  CachingAllocator allocator_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace tessera
