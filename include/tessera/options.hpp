// The options of a run, as plain structs. lib/config fills them from YAML (docs/configuration.md
// lists the keys); programs may also fill them by hand. Defaults are those of an absent key.
#pragma once

#include <tessera/export.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// `run:` — identity of the run and what holds for all of it.
struct RunOptions {
  std::string name = "run";
  std::string dir;  ///< default runs/<name>
  std::uint64_t seed = 1234;
  bool deterministic = true;  ///< the same bits for every ZeRO stage and CPU backend
  int threads = 0;            ///< threads per rank; 0 = from the CPU mask (contract of the docs)
};

/// `model.tokenizer:`
struct TokenizerOptions {
  std::string type = "byte";  ///< byte
  std::string path;
};

/// `model:` — the architecture.
struct ModelOptions {
  std::string family = "llama";  ///< llama | gpt2 | mixtral
  int num_layers = 4;
  int hidden_size = 128;
  int num_heads = 4;
  int num_kv_heads = 0;       ///< 0 = num_heads
  int intermediate_size = 0;  ///< 0 = 4 x hidden (gpt2), else 8/3 x hidden rounded up to 8
  int vocab_size = 0;         ///< 0 = auto: from the tokenizer
  int max_seq_len = 128;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool tie_embeddings = false;
  double dropout = 0.0;
  double init_std = 0.02;
  TokenizerOptions tokenizer;
};

/// `moe:` — present = mixture of experts.
struct MoeOptions {
  int num_experts = 8;
  int top_k = 2;
  double capacity_factor = 1.0;
  double eval_capacity_factor = 1.0;
  int min_capacity = 4;
  bool drop_tokens = true;
  double aux_loss_coef = 0.01;
  std::string aux_loss_scope = "local";  ///< local | global
  double z_loss_coef = 0.0;
  double jitter = 0.0;
  bool second_choice_sampling = false;  ///< Gumbel noise on the second choice, training only
  int expert_parallel_size = 1;         ///< 0 = auto: largest divisor of ranks and experts
  int every_n_layers = 1;
  std::string drop_policy = "position";  ///< position | probs
};

/// `trainer:` — the loop.
struct TrainerOptions {
  std::string backend = "tessera";
  int zero_stage = 3;
  std::int64_t micro_batch_size = 0;             ///< 0 = to be derived
  std::int64_t gradient_accumulation_steps = 0;  ///< 0 = to be derived
  std::int64_t train_batch_size = 0;             ///< 0 = auto
  std::int64_t max_steps = 100;
  std::int64_t log_interval = 10;
  std::int64_t eval_interval = 0;
  std::int64_t eval_batches = 16;
  std::string activation_checkpointing = "none";  ///< none | block
};

/// `precision:`
struct PrecisionOptions {
  std::string compute = "fp32";  ///< fp32
};

/// `optimizer:`
struct OptimizerOptions {
  std::string type = "adamw";  ///< adamw | adam | sgd
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double momentum = 0.0;   ///< sgd only
  double grad_clip = 0.0;  ///< global norm; 0 or less = off
};

/// `scheduler:`
struct SchedulerOptions {
  std::string type = "constant";  ///< constant | linear | cosine | wsd | inverse_sqrt
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< 0 = trainer.max_steps
  double min_lr_ratio = 0.0;     ///< the final rate as a share of lr
  double decay_ratio = 0.1;      ///< wsd: share of total_steps spent decaying
};

/// `data:`
struct DataOptions {
  std::vector<std::string> train;  ///< paths or globs
  std::vector<std::string> eval;   ///< empty = hold out the end of train
  double eval_fraction = 0.05;
  std::string format = "text";  ///< text
  std::int64_t seq_len = 128;
  bool shuffle = true;
};

/// `checkpoint:`
struct CheckpointOptions {
  std::string dir;                 ///< "" = auto: run.dir/checkpoints
  std::int64_t save_interval = 0;  ///< 0 = never
  std::int64_t keep_last = 3;      ///< 0 = all
  bool save_on_signal = true;
  bool async = false;              ///< write in the background; not built yet
  std::string page_size = "auto";  ///< auto: 4 KiB, or 2 MiB on GPUs that profit
  int compression_level = 1;
};

/// `zero.offload_optimizer:`
struct OffloadOptions {
  std::string device = "none";  ///< none
};

/// `zero:`
struct ZeroOptions {
  int prefetch_units = 1;
  std::int64_t persistence_threshold = 0;  ///< parameters below this many elements stay whole
  std::string shard_group = "world";       ///< world
  OffloadOptions offload_optimizer;
};

/// `comm:`
struct CommOptions {
  std::string backend = "auto";  ///< auto | local | mpi
  double timeout_s = 300.0;
  std::int64_t window_bytes = 4 << 20;  ///< shared-memory staging per rank
};

/// One fault on purpose, for tests and drills (`debug.inject`).
struct FaultInjection {
  std::int64_t step = -1;  ///< at the start of this optimizer step (1 = the first)
  int rank = 0;
  std::string action;  ///< throw | exit | kill | stall
};

/// `debug:`
struct DebugOptions {
  std::vector<FaultInjection> inject;
};

/// Everything. `resolved_yaml` is the file with all defaults filled in, as run.dir/config.yaml
/// holds.
struct Config {
  RunOptions run;
  ModelOptions model;
  std::optional<MoeOptions> moe;
  TrainerOptions trainer;
  PrecisionOptions precision;
  OptimizerOptions optimizer;
  SchedulerOptions scheduler;
  DataOptions data;
  CheckpointOptions checkpoint;
  ZeroOptions zero;
  CommOptions comm;
  std::string device = "auto";  ///< auto | cpu
  DebugOptions debug;
  std::string resolved_yaml;

  /// Where each key that was given stands: "trainer.zero_stage" → "file.yaml:12" or "--set …". Keys
  /// that are missing here have their defaults.
  std::map<std::string, std::string> origins;
  /// What is allowed but looks like a mistake; for the log, each with its place.
  std::vector<std::string> warnings;
};

/// One key of a configuration as it will be used.
struct ConfigValue {
  std::string key;     ///< "trainer.zero_stage"
  std::string value;   ///< as in the resolved YAML
  std::string origin;  ///< "default", "file.yaml:12" or "--set …"
};

/// All keys in the order of docs/configuration.md, for logs.
TESSERA_API std::vector<ConfigValue> config_values(const Config& config);
/// The resolved YAML of `config` as it is now. load_config() reads it to the same values.
TESSERA_API std::string config_to_yaml(const Config& config);
/// The tables of docs/configuration.md: every key with type, default and meaning.
TESSERA_API std::string config_reference();

/// Fills in what depends on the number of ranks: the batch sizes (two give the third, all three
/// must agree; with fewer than two given, accumulation and micro batch are 1 where they are free),
/// and expert_parallel_size. Renews resolved_yaml. Raises Error{kUsage} with all the numbers when
/// they cannot be met.
TESSERA_API void resolve_for_ranks(Config& config, int ranks);
/// Raises Error{kUsage} where no number of ranks would do. For checks before the number is known.
TESSERA_API void check_for_any_ranks(const Config& config);

/// Reads and checks a YAML file; `overrides` are "key.path=value" and go through the same checks,
/// taking the place of the file's values. Sizes that follow from others (run.dir, num_kv_heads,
/// intermediate_size) are filled in; what needs the number of ranks is left to resolve_for_ranks().
/// Raises Error{kUsage} (content) or Error{kData} (file) with "file:line: key" as context.
TESSERA_API Config load_config(const std::string& path,
                               const std::vector<std::string>& overrides = {});

}  // namespace tessera
