#include "data/data_set.hpp"

#include <tessera/data.hpp>
#include <tessera/error.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.hpp"

namespace tessera {

namespace {

std::string size_text(const TokenStream& stream, std::int64_t seq_len) {
  std::string files = "'" + stream.files().front().path + "'";
  if (stream.files().size() > 1) {
    files = fmt::format("the {} files from {} on", stream.files().size(), files);
  }
  return fmt::format("{} hold {} tokens; one sequence of seq_len {} needs {}", files,
                     stream.tokens(), seq_len, seq_len + 1);
}

std::shared_ptr<TokenStream> open_stream(Env& env, Communicator& comm, Logger& logger,
                                         const std::vector<std::string>& patterns,
                                         std::int64_t seq_len, const std::string& key) {
  std::vector<std::string> repeated;
  auto files = agree_on_files(env, comm, patterns, key, repeated);
  if (comm.rank() == 0) {
    for (const std::string& path : repeated) {
      logger.warning(fmt::format("'{}' is listed twice and read once [{}]", path, key));
    }
  }
  auto stream = std::make_shared<TokenStream>(env, std::move(files));
  if (stream->tokens() < static_cast<std::uint64_t>(seq_len) + 1) {
    throw Error(ErrorCode::kData, "too short: " + size_text(*stream, seq_len), key);
  }
  return stream;
}

std::int64_t sequences_in(const TokenStream& stream, std::int64_t seq_len) {
  return static_cast<std::int64_t>((stream.tokens() - 1) / static_cast<std::uint64_t>(seq_len));
}

}  // namespace

void SequenceRange::read(std::int64_t index, std::span<std::int32_t> tokens,
                         std::span<std::int32_t> targets) {
  TESSERA_CHECK(index >= 0 && index < count_, "sequence {} of {}", index, count_);
  buffer_.resize(static_cast<std::size_t>(seq_len_) + 1);
  stream_->read(static_cast<std::uint64_t>((first_ + index) * seq_len_), buffer_);
  std::copy(buffer_.begin(), buffer_.end() - 1, tokens.begin());
  std::copy(buffer_.begin() + 1, buffer_.end(), targets.begin());
}

DataSet open_data_set(Env& env, Communicator& comm, Logger& logger, const DataOptions& options,
                      const TokenizerOptions& tokenizer, int vocab_size) {
  if (options.format != "text") {
    throw Error(ErrorCode::kUsage, "only text is supported, not '" + options.format + "'",
                "data.format");
  }
  if (options.seq_len < 1) {
    throw Error(ErrorCode::kUsage, fmt::format("must be at least 1, is {}", options.seq_len),
                "data.seq_len");
  }
  if (!(options.eval_fraction >= 0.0 && options.eval_fraction < 1.0)) {
    throw Error(ErrorCode::kUsage, fmt::format("must be in [0, 1), is {}", options.eval_fraction),
                "data.eval_fraction");
  }
  if (options.train.empty()) {
    throw Error(ErrorCode::kUsage, "no files are given", "data.train");
  }
  tokenizer_vocab_size(tokenizer);  // refuses what it does not know

  const std::int64_t seq_len = options.seq_len;
  const auto stream = open_stream(env, comm, logger, options.train, seq_len, "data.train");
  const std::int64_t all = sequences_in(*stream, seq_len);

  DataSet set;
  std::int64_t held_out = 0;
  if (!options.eval.empty()) {
    const auto eval = open_stream(env, comm, logger, options.eval, seq_len, "data.eval");
    if (vocab_size > 0 && vocab_size < tokenizer_vocab_size(tokenizer)) {
      check_and_hash(*eval, comm, vocab_size, "data.eval");
    }
    set.eval = SequenceRange(eval, seq_len, 0, sequences_in(*eval, seq_len));
  } else if (options.eval_fraction > 0.0 && all > 1) {
    const auto share = std::llround(static_cast<double>(all) * options.eval_fraction);
    held_out = std::clamp<std::int64_t>(share, 1, all - 1);
    set.eval = SequenceRange(stream, seq_len, all - held_out, held_out);
  }
  set.train = SequenceRange(stream, seq_len, 0, all - held_out);
  set.fingerprint =
      fmt::format("{}-{}-{}x{}{}", check_and_hash(*stream, comm, vocab_size, "data.train"),
                  tokenizer.type, set.train.count(), seq_len, options.shuffle ? "-shuffled" : "");
  return set;
}

}  // namespace tessera
