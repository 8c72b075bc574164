#include "checkpoint/zstd_codec.hpp"

#include <tessera/error.hpp>

#include <string>

#include <zstd.h>

#include "base/check.hpp"

namespace tessera {

struct Compressor::Context {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  ~Context() { ZSTD_freeCCtx(zstd); }
};

struct Decompressor::Context {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  ~Context() { ZSTD_freeDCtx(zstd); }
};

Compressor::Compressor(int level) : context_(std::make_unique<Context>()) {
  TESSERA_CHECK(context_->zstd != nullptr);
  if (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel()) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("must be from {} to {}, is {}", ZSTD_minCLevel(), ZSTD_maxCLevel(), level),
        "checkpoint.compression_level");
  }
  ZSTD_CCtx_setParameter(context_->zstd, ZSTD_c_compressionLevel, level);
  // The chunk's own checksums are stronger and cover the frame as well.
  ZSTD_CCtx_setParameter(context_->zstd, ZSTD_c_checksumFlag, 0);
  ZSTD_CCtx_setParameter(context_->zstd, ZSTD_c_contentSizeFlag, 1);
}

Compressor::~Compressor() = default;

std::span<const std::byte> Compressor::compress(std::span<const std::byte> raw) {
  const std::size_t bound = ZSTD_compressBound(raw.size());
  if (buffer_.size() < bound) buffer_.resize(bound);
  const std::size_t bytes =
      ZSTD_compress2(context_->zstd, buffer_.data(), buffer_.size(), raw.data(), raw.size());
  TESSERA_CHECK(ZSTD_isError(bytes) == 0, "zstd: {}", ZSTD_getErrorName(bytes));
  return std::span(buffer_).first(bytes);
}

Decompressor::Decompressor() : context_(std::make_unique<Context>()) {
  TESSERA_CHECK(context_->zstd != nullptr);
}

Decompressor::~Decompressor() = default;

void Decompressor::decompress(std::span<const std::byte> frame, std::span<std::byte> raw) {
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != raw.size()) {
    throw Error(ErrorCode::kCheckpoint, "a zstd frame holds another number of bytes");
  }
  const std::size_t bytes =
      ZSTD_decompressDCtx(context_->zstd, raw.data(), raw.size(), frame.data(), frame.size());
  if (ZSTD_isError(bytes) != 0) {
    throw Error(ErrorCode::kCheckpoint,
                std::string("a zstd frame is damaged: ") + ZSTD_getErrorName(bytes));
  }
  if (bytes != raw.size()) throw Error(ErrorCode::kCheckpoint, "a zstd frame is too short");
}

}  // namespace tessera
