// Memory that the ranks of a group see together.
#pragma once

#include <cstddef>
#include <memory>

namespace tessera {

/// Memory that lives as long as the object.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 protected:
  SharedMemory(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

 private:
  std::byte* data_;
  std::size_t bytes_;
};

/// Zeroed memory of this process, backed by pages only where it is used.
std::shared_ptr<SharedMemory> make_process_memory(std::size_t bytes);

}  // namespace tessera
