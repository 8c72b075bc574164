// Small tensors between host and device.
#pragma once

#include <tessera/stream.hpp>
#include <tessera/tensor.hpp>

#include <cstring>
#include <utility>
#include <vector>

namespace tessera::moe {

/// The elements of `tensor`, after waiting for everything on `stream`.
template <typename T>
std::vector<T> read_to_host(Stream& stream, const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  stream.synchronize();
  if (!values.empty()) std::memcpy(values.data(), tensor.data<T>(), values.size() * sizeof(T));
  return values;
}

/// A new tensor that holds `values` once `stream` gets there.
template <typename T>
Tensor copy_to_device(Stream& stream, Device& device, std::vector<T> values, Shape shape,
                      DType dtype, MemoryTag tag = MemoryTag::kActivations) {
  Tensor tensor(device, std::move(shape), dtype, tag);
  if (values.empty()) return tensor;
  stream.enqueue([tensor, values = std::move(values)] {
    std::memcpy(tensor.data<T>(), values.data(), values.size() * sizeof(T));
  });
  return tensor;
}

}  // namespace tessera::moe
