// Data: token sources, and the loader that deals sequences to ranks.
//
// Every sequence has a global index. Its place in the order is a function of (seed, epoch,
// position) alone, so it depends neither on ranks nor on batch sizes nor on resume; the loader's
// whole state is the number of sequences dealt so far.
#pragma once

#include <tessera/checkpoint.hpp>
#include <tessera/export.hpp>
#include <tessera/options.hpp>
#include <tessera/tensor.hpp>
#include <tessera/world.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

class Env;

/// Target value of a position that counts for nothing.
inline constexpr std::int32_t kIgnoreTarget = -100;

/// One micro batch of one rank.
struct MicroBatch {
  Tensor tokens;                     ///< int32 [sequences, seq_len]
  Tensor targets;                    ///< int32 [sequences, seq_len], kIgnoreTarget = masked
  Tensor sequence_index;             ///< int64 [sequences], global sequence numbers; -1 = padding
  std::int64_t unmasked_tokens = 0;  ///< targets that count
  std::int64_t routed_tokens = 0;    ///< tokens of sequences that are not padding
};

/// How many tokens this rank contributes to a step.
struct TokenCounts {
  std::int64_t unmasked = 0;
  std::int64_t routed = 0;
};

/// The micro batches of one optimizer step on one rank.
class TESSERA_API StepData {
 public:
  TokenCounts counts() const;
  auto begin() const { return micro_batches.begin(); }
  auto end() const { return micro_batches.end(); }

  std::vector<MicroBatch> micro_batches;
};

/// Deals the sequences of a data set to the ranks of a job.
class TESSERA_API DataLoader : public StateSource {
 public:
  /// Opens and checks the files; raises Error{kData} naming the file that is empty, missing,
  /// unreadable or too short, or that holds a token outside model.vocab_size (0 = any), with its
  /// offset. `trainer` gives the resolved batch sizes, `run.seed` the order.
  /// Rank 0 decides which files exist; all ranks then open the same ones, and all raise the same
  /// error. Collective, and reads each training file once (the ranks share the work).
  DataLoader(const Config& config, World& world);
  /// The same over other files than the operating system's. `env` outlives the loader.
  DataLoader(const Config& config, World& world, Env& env);
  ~DataLoader() override;

  /// The next optimizer step's micro batches for this rank; wraps into the next epoch. Micro step
  /// m, rank r, row i takes position cursor + (m · ranks + r) · micro_batch_size + i of the order,
  /// so the step's sequences are the same for any number of ranks. sequence_index holds these
  /// positions.
  StepData next_step();
  /// The held-out batches for an evaluation: at most `batches` micro batches per rank, the same
  /// number on every rank, the last ones padded with masked sequences. Always the same ones, in
  /// order; sequence_index counts the held-out sequences. Raises Error{kData} when there are none.
  std::vector<MicroBatch> eval_batches(std::int64_t batches);

  std::int64_t sequences_per_epoch() const;
  std::int64_t cursor() const;  ///< sequences dealt to all ranks since the start
  double epoch() const;         ///< cursor / sequences_per_epoch
  int vocab_size() const;       ///< of the tokenizer
  /// What training data there is, as text: a hash of the files' content, the tokenizer, the number
  /// and length of the sequences, shuffled or not. Held-out files do not count, file names neither.
  std::string fingerprint() const;

  // StateSource: cursor, seed (the order keeps the saved one), seq_len (a changed one is refused).
  std::vector<StateSlice> state_to_save() override;
  std::vector<StateSlice> state_to_load() override;
  void save_common(StateMap& state) override;
  void load_common(const StateMap& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Vocabulary size of the tokenizer that `options` names (byte: 256).
TESSERA_API int tokenizer_vocab_size(const TokenizerOptions& options);

}  // namespace tessera
