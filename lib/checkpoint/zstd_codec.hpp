// zstd with contexts that are made once: the only place that knows the library.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace tessera {

/// Compresses chunks, one frame each. For one thread.
class Compressor {
 public:
  explicit Compressor(int level);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// The frame, valid until the next call.
  std::span<const std::byte> compress(std::span<const std::byte> raw);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> buffer_;
};

/// Decompresses chunks. For one thread.
class Decompressor {
 public:
  Decompressor();
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  /// Fills `raw` from exactly one frame that holds exactly that many bytes. Raises
  /// Error{kCheckpoint} with the reason otherwise.
  void decompress(std::span<const std::byte> frame, std::span<std::byte> raw);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace tessera
