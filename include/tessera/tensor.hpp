// Tensors: a contiguous, row-major piece of a storage, seen with a shape and an element type.
//
// A Storage can be emptied and refilled, possibly elsewhere, without touching the tensors that view
// it: ZeRO-3 frees a unit's gathered parameters after forward and gathers them again for backward.
// Kernels therefore take the pointer when they *run*, and reading an empty storage is a failed
// check.
#pragma once

#include <tessera/device.hpp>
#include <tessera/dtype.hpp>
#include <tessera/export.hpp>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// The sizes of a tensor, outermost first. An empty shape is a scalar of one element.
class TESSERA_API Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : sizes_(sizes) {}
  explicit Shape(std::vector<std::int64_t> sizes) : sizes_(std::move(sizes)) {}

  int rank() const { return static_cast<int>(sizes_.size()); }
  /// Size of dimension `axis`; negative counts from the end.
  std::int64_t operator[](int axis) const;
  std::int64_t elements() const;
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  bool operator==(const Shape&) const = default;
  /// "[2, 3]".
  std::string to_string() const;

 private:
  std::vector<std::int64_t> sizes_;
};

/// Bytes on a device that tensors view; shared by them.
class TESSERA_API Storage {
 public:
  /// Allocates `bytes` unless `start_empty`.
  Storage(Device& device, std::size_t bytes, MemoryTag tag, bool start_empty = false);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Address of the first byte; a failed check when empty.
  std::byte* data() const;
  bool empty() const { return data_ == nullptr; }
  std::size_t bytes() const { return bytes_; }
  MemoryTag tag() const { return tag_; }
  Device& device() const { return *device_; }

  /// Frees the memory. The caller orders this after the last reader.
  void release();
  /// Allocates the memory again, uninitialised; nothing when it is there.
  void refill();

  /// Counts changes of content, for caches of derived values.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Device* device_;
  std::size_t bytes_;
  MemoryTag tag_;
  std::byte* data_ = nullptr;
  std::atomic<std::uint64_t> version_{0};
};

/// A view of `shape` elements of `dtype`, starting `offset` elements into a storage. Copying a
/// Tensor copies the handle. An undefined Tensor has no storage.
class TESSERA_API Tensor {
 public:
  Tensor() = default;
  /// Allocates an uninitialised tensor.
  Tensor(Device& device, Shape shape, DType dtype, MemoryTag tag = MemoryTag::kActivations);
  /// Views a storage; the range must lie inside it.
  Tensor(std::shared_ptr<Storage> storage, std::int64_t offset, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t size(int axis) const { return shape_[axis]; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::size_t bytes() const;
  std::int64_t offset() const { return offset_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  Device& device() const;

  /// Address of the first element; T must fit dtype(). Only for code that runs on the tensor's
  /// stream, or after waiting for it.
  template <typename T>
  T* data() const {
    return static_cast<T*>(checked_data(sizeof(T)));
  }
  void* raw_data() const { return checked_data(0); }

  /// The same elements under another shape of equal size.
  Tensor reshape(Shape shape) const;
  /// `count` elements from `begin` on, as one dimension.
  Tensor flat_slice(std::int64_t begin, std::int64_t count) const;
  /// Rows [begin, end) along the first dimension.
  Tensor rows(std::int64_t begin, std::int64_t end) const;

 private:
  void* checked_data(std::size_t element_bytes) const;

  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;
  Shape shape_;
  std::int64_t elements_ = 0;
  DType dtype_ = DType::kF32;
};

}  // namespace tessera
