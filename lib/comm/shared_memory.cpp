#include "comm/shared_memory.hpp"

#include <sys/mman.h>

#include "base/check.hpp"

namespace tessera {

namespace {

class ProcessMemory final : public SharedMemory {
 public:
  ProcessMemory(std::byte* data, std::size_t bytes) : SharedMemory(data, bytes) {}
  ~ProcessMemory() override { munmap(data(), bytes()); }
};

}  // namespace

std::shared_ptr<SharedMemory> make_process_memory(std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    fail(ErrorCode::kInternal, "out of memory: {} bytes for communication windows", bytes);
  }
  return std::make_shared<ProcessMemory>(static_cast<std::byte*>(data), bytes);
}

}  // namespace tessera
