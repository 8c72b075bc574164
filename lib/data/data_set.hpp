// The sequences of a data set: where training and held-out data lie in which files.
#pragma once

#include <tessera/comm.hpp>
#include <tessera/log.hpp>
#include <tessera/options.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/env.hpp"
#include "data/token_stream.hpp"

namespace tessera {

/// Consecutive sequences of a stream. Sequence i covers the seq_len + 1 tokens from i · seq_len on:
/// its inputs are all but the last, its targets all but the first, so that neighbours overlap by
/// one token and each token but the stream's first is a target exactly once. The (tokens − 1) mod
/// seq_len tokens at the stream's end are not used.
class SequenceRange {
 public:
  SequenceRange() = default;
  SequenceRange(std::shared_ptr<TokenStream> stream, std::int64_t seq_len, std::int64_t first,
                std::int64_t count)
      : stream_(std::move(stream)), seq_len_(seq_len), first_(first), count_(count) {}

  std::int64_t count() const { return count_; }
  /// Reads sequence `index` into two rows of seq_len values each.
  void read(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

 private:
  std::shared_ptr<TokenStream> stream_;
  std::int64_t seq_len_ = 0;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::vector<std::uint8_t> buffer_;
};

/// What the loader deals from.
struct DataSet {
  SequenceRange train;
  SequenceRange eval;  ///< may hold nothing
  /// Hash of what training data there is: content, tokenizer, seq_len, number of sequences.
  std::string fingerprint;
};

/// Opens a data set on all ranks. Raises the same Error on all of them: kUsage for options that
/// cannot be met, kData naming the file or the sizes for files that cannot be used. Collective.
DataSet open_data_set(Env& env, Communicator& comm, Logger& logger, const DataOptions& options,
                      const TokenizerOptions& tokenizer, int vocab_size);

}  // namespace tessera
