#include <tessera/tensor.hpp>

#include <fmt/ranges.h>

#include "base/check.hpp"

namespace tessera {

std::int64_t Shape::operator[](int axis) const {
  const int index = axis < 0 ? axis + rank() : axis;
  TESSERA_CHECK(index >= 0 && index < rank(), "axis {} of shape {}", axis, to_string());
  return sizes_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes_) count *= size;
  return count;
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(sizes_, ", ")); }

Storage::Storage(Device& device, std::size_t bytes, MemoryTag tag, bool start_empty)
    : device_(&device), bytes_(bytes), tag_(tag) {
  if (!start_empty) refill();
}

Storage::~Storage() { release(); }

std::byte* Storage::data() const {
  TESSERA_CHECK(data_ != nullptr, "read of an empty storage of {} bytes ({})", bytes_,
                to_string(tag_));
  return data_;
}

void Storage::release() {
  if (data_ == nullptr) return;
  device_->free(data_, bytes_, tag_);
  data_ = nullptr;
}

void Storage::refill() {
  if (data_ != nullptr) return;
  data_ = static_cast<std::byte*>(device_->allocate(bytes_, tag_));
  bump_version();
}

Tensor::Tensor(Device& device, Shape shape, DType dtype, MemoryTag tag)
    : shape_(std::move(shape)), elements_(shape_.elements()), dtype_(dtype) {
  TESSERA_CHECK(elements_ >= 0, "shape {}", shape_.to_string());
  storage_ = std::make_shared<Storage>(device, bytes(), tag);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, std::int64_t offset, Shape shape, DType dtype)
    : storage_(std::move(storage)),
      offset_(offset),
      shape_(std::move(shape)),
      elements_(shape_.elements()),
      dtype_(dtype) {
  TESSERA_CHECK(
      offset_ >= 0 && elements_ >= 0 &&
          (static_cast<std::size_t>(offset_ + elements_)) * size_of(dtype_) <= storage_->bytes(),
      "{} elements from {} on lie outside a storage of {} bytes", elements_, offset_,
      storage_->bytes());
}

std::size_t Tensor::bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }

Device& Tensor::device() const {
  TESSERA_CHECK(defined(), "an undefined tensor has no device");
  return storage_->device();
}

void* Tensor::checked_data(std::size_t element_bytes) const {
  TESSERA_CHECK(defined(), "an undefined tensor has no data");
  TESSERA_CHECK(element_bytes == 0 || element_bytes == size_of(dtype_),
                "element type of {} bytes for a tensor of {}", element_bytes, to_string(dtype_));
  return storage_->data() + static_cast<std::size_t>(offset_) * size_of(dtype_);
}

Tensor Tensor::reshape(Shape shape) const {
  TESSERA_CHECK(shape.elements() == elements_, "{} cannot be seen as {}", shape_.to_string(),
                shape.to_string());
  return Tensor(storage_, offset_, std::move(shape), dtype_);
}

Tensor Tensor::flat_slice(std::int64_t begin, std::int64_t count) const {
  TESSERA_CHECK(begin >= 0 && count >= 0 && begin + count <= elements_,
                "{} elements from {} on of {}", count, begin, elements_);
  return Tensor(storage_, offset_ + begin, Shape{count}, dtype_);
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  TESSERA_CHECK(shape_.rank() > 0 && begin >= 0 && begin <= end && end <= shape_[0],
                "rows {} to {} of {}", begin, end, shape_.to_string());
  const std::int64_t row = shape_[0] == 0 ? 0 : elements_ / shape_[0];
  std::vector<std::int64_t> sizes = shape_.sizes();
  sizes[0] = end - begin;
  return Tensor(storage_, offset_ + begin * row, Shape(std::move(sizes)), dtype_);
}

}  // namespace tessera
