// Scratch memory of CPU kernels.
#pragma once

#include <tessera/device.hpp>

#include <cstdint>

namespace tessera::cpu {

/// Scratch memory of a kernel, counted as workspace.
template <typename T>
class Workspace {
 public:
  Workspace(Device& device, std::int64_t elements)
      : device_(device), bytes_(static_cast<std::size_t>(elements) * sizeof(T)) {
    data_ = static_cast<T*>(device_.allocate(bytes_, MemoryTag::kWorkspace));
  }
  ~Workspace() { device_.free(data_, bytes_, MemoryTag::kWorkspace); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  T* data() const { return data_; }

 private:
  Device& device_;
  std::size_t bytes_;
  T* data_;
};

}  // namespace tessera::cpu
