// Collectives of a group of one rank: copies, where input and output differ.
#pragma once

#include <cstring>

#include "comm/transport.hpp"

namespace tessera {

class SoloTransport final : public Transport {
 public:
  void all_gather(const OperationInfo&, const std::byte* input, std::byte* output,
                  std::size_t bytes) override {
    copy_bytes(output, input, bytes);
  }
  void reduce_scatter(const OperationInfo&, const std::byte* input, std::byte* output,
                      std::int64_t elements, DType dtype, ReduceOp) override {
    copy_bytes(output, input, static_cast<std::size_t>(elements) * size_of(dtype));
  }
  void all_reduce(const OperationInfo&, const std::byte* input, std::byte* output,
                  std::int64_t elements, DType dtype, ReduceOp) override {
    copy_bytes(output, input, static_cast<std::size_t>(elements) * size_of(dtype));
  }
  void all_to_all(const OperationInfo& info, const std::byte* input,
                  std::span<const std::int64_t> send_bytes, std::byte* output,
                  std::span<const std::int64_t> receive_bytes) override {
    if (send_bytes[0] != receive_bytes[0]) {
      const auto size = static_cast<std::int64_t>(size_of(static_cast<DType>(info.dtype)));
      counts_differ(GroupInfo{"of one", 0, {0}}, info, 0, 0, send_bytes[0] / size,
                    receive_bytes[0] / size);
    }
    copy_bytes(output, input, static_cast<std::size_t>(send_bytes[0]));
  }
  void broadcast(const OperationInfo&, std::byte*, std::size_t, int) override {}
  void barrier(const OperationInfo&) override {}

 private:
  static void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
};

}  // namespace tessera
