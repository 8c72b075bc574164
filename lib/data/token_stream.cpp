#include "data/token_stream.hpp"

#include <tessera/error.hpp>

#include <algorithm>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/agreement.hpp"
#include "base/bytes.hpp"
#include "base/check.hpp"

namespace tessera {

namespace {

constexpr std::size_t kMaxOpenFiles = 16;
// Part of the hash's definition.
constexpr std::uint64_t kHashBlockBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

}  // namespace

TokenStream::TokenStream(Env& env, std::vector<DataFile> files)
    : env_(&env), files_(std::move(files)) {
  for (const DataFile& file : files_) {
    starts_.push_back(tokens_);
    tokens_ += file.bytes;
  }
}

std::size_t TokenStream::file_of(std::uint64_t token) const {
  TESSERA_CHECK(token < tokens_, "token {} of {}", token, tokens_);
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), token);
  return static_cast<std::size_t>(after - starts_.begin()) - 1;
}

const RandomAccessFile& TokenStream::opened(std::size_t file) {
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [file](const OpenFile& open) { return open.file == file; });
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
  } else {
    if (open_.size() == kMaxOpenFiles) open_.erase(open_.begin());
    open_.push_back({file, env_->open_for_read(files_[file].path)});
  }
  return *open_.back().reader;
}

void TokenStream::read(std::uint64_t begin, std::span<std::uint8_t> destination) {
  while (!destination.empty()) {
    const std::size_t file = file_of(begin);
    const std::uint64_t offset = begin - starts_[file];
    const std::size_t count =
        std::min<std::uint64_t>(destination.size(), files_[file].bytes - offset);
    opened(file).read(offset, std::as_writable_bytes(destination.first(count)));
    destination = destination.subspan(count);
    begin += count;
  }
}

std::pair<std::string, std::uint64_t> TokenStream::locate(std::uint64_t token) const {
  const std::size_t file = file_of(token);
  return {files_[file].path, token - starts_[file]};
}

std::string check_and_hash(TokenStream& stream, Communicator& comm, int vocab_size,
                           const std::string& key) {
  const auto size = static_cast<std::uint64_t>(comm.size());
  const std::uint64_t blocks = (stream.tokens() + kHashBlockBytes - 1) / kHashBlockBytes;
  const auto outcomes = gather_outcomes(comm, "content of " + key, [&] {
    // This rank's first token outside the vocabulary and its place, then its blocks' hashes.
    std::uint64_t place = kNowhere;
    std::uint8_t token = 0;
    std::string hashes;
    std::vector<std::uint8_t> buffer(std::min(kHashBlockBytes, stream.tokens()));
    for (auto block = static_cast<std::uint64_t>(comm.rank()); block < blocks; block += size) {
      const std::uint64_t begin = block * kHashBlockBytes;
      const std::span tokens =
          std::span(buffer).first(std::min(kHashBlockBytes, stream.tokens() - begin));
      stream.read(begin, tokens);
      put_integer<std::uint64_t>(hashes, XXH3_64bits(tokens.data(), tokens.size()));
      if (vocab_size <= 0 || vocab_size > 255 || place != kNowhere) continue;
      const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                    [&](std::uint8_t value) { return value >= vocab_size; });
      if (bad == tokens.end()) continue;
      place = begin + static_cast<std::uint64_t>(bad - tokens.begin());
      token = *bad;
    }
    std::string outcome;
    put_integer(outcome, place);
    put_integer(outcome, token);
    return outcome + hashes;
  });

  std::pair<std::uint64_t, std::uint8_t> first{kNowhere, 0};
  std::vector<ByteReader> hashes;
  for (const std::string& outcome : outcomes) {
    ByteReader& reader = hashes.emplace_back(outcome);
    const auto place = reader.integer<std::uint64_t>();
    first = std::min(first, {place, reader.integer<std::uint8_t>()});
  }
  if (first.first != kNowhere) {
    const auto [path, offset] = stream.locate(first.first);
    throw Error(ErrorCode::kData,
                fmt::format("'{}' has token {} at offset {}, outside the vocabulary of {}", path,
                            first.second, offset, vocab_size),
                key);
  }

  std::string all;
  put_integer<std::uint64_t>(all, stream.tokens());
  for (std::uint64_t block = 0; block < blocks; ++block) {
    put_integer(all, hashes[block % size].integer<std::uint64_t>());
  }
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace tessera
