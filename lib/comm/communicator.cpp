// The blocking helpers of Communicator, built on its operations.
#include <tessera/comm.hpp>

#include <algorithm>
#include <cstring>

namespace tessera {

namespace {

// A few host values on their way: a device and a stream of their own, since the helpers have none.
class HostValues {
 public:
  HostValues() : device_(make_cpu_device()), stream_(device_->make_stream("values")) {}

  Tensor make(std::int64_t elements, DType dtype) {
    return Tensor(*device_, Shape{elements}, dtype, MemoryTag::kComm);
  }
  Tensor make(const void* data, std::int64_t elements, DType dtype) {
    Tensor tensor = make(elements, dtype);
    if (elements > 0) std::memcpy(tensor.raw_data(), data, tensor.bytes());
    return tensor;
  }
  CollectiveOrder order(std::string_view label) { return {*stream_, {}, label}; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

template <typename T>
void reduce_values(Communicator& communicator, std::span<T> values, DType dtype, ReduceOp op,
                   std::string_view label) {
  HostValues host;
  const Tensor tensor = host.make(values.data(), static_cast<std::int64_t>(values.size()), dtype);
  communicator.all_reduce(tensor, tensor, op, host.order(label)).wait();
  std::copy_n(tensor.data<T>(), values.size(), values.data());
}

}  // namespace

std::vector<std::string> Communicator::all_gather_bytes(std::string_view bytes,
                                                        std::string_view label) {
  HostValues host;
  const auto ranks = static_cast<std::size_t>(size());
  const auto length = static_cast<std::int64_t>(bytes.size());
  const Tensor mine = host.make(&length, 1, DType::kI64);
  const Tensor lengths = host.make(size(), DType::kI64);
  all_gather(mine, lengths, host.order(label)).wait();
  const auto* const sizes = lengths.data<std::int64_t>();
  const std::int64_t longest = *std::max_element(sizes, sizes + ranks);
  const Tensor input = host.make(longest, DType::kU8);
  const Tensor output = host.make(longest * size(), DType::kU8);
  auto* const padded = input.data<char>();
  std::fill_n(padded, longest, '\0');
  std::copy(bytes.begin(), bytes.end(), padded);
  all_gather(input, output, host.order(label)).wait();
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    result.emplace_back(output.data<char>() + static_cast<std::int64_t>(rank) * longest,
                        static_cast<std::size_t>(sizes[rank]));
  }
  return result;
}

std::string Communicator::broadcast_bytes(std::string_view bytes, int root,
                                          std::string_view label) {
  HostValues host;
  auto length = static_cast<std::int64_t>(bytes.size());
  const Tensor announced = host.make(&length, 1, DType::kI64);
  broadcast(announced, root, host.order(label)).wait();
  length = *announced.data<std::int64_t>();
  const bool is_root = rank() == root;
  const Tensor content =
      is_root ? host.make(bytes.data(), length, DType::kU8) : host.make(length, DType::kU8);
  broadcast(content, root, host.order(label)).wait();
  return std::string(content.data<char>(), static_cast<std::size_t>(length));
}

void Communicator::all_reduce_values(std::span<double> values, ReduceOp op,
                                     std::string_view label) {
  reduce_values(*this, values, DType::kF64, op, label);
}

void Communicator::all_reduce_values(std::span<std::int64_t> values, ReduceOp op,
                                     std::string_view label) {
  reduce_values(*this, values, DType::kI64, op, label);
}

void Communicator::barrier_blocking(std::string_view label) {
  HostValues host;
  barrier(host.order(label)).wait();
}

}  // namespace tessera
