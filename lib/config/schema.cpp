#include "config/schema.hpp"

namespace tessera::config {

namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxBatch = 1'000'000'000;
constexpr NumberRule kNotNegative{.min = 0};
constexpr NumberRule kPositive{.min = 0, .open_min = true};
constexpr NumberRule kShare{.min = 0, .max = 1};
constexpr NumberRule kBelowOne{.min = 0, .max = 1, .open_max = true};

}  // namespace

static void describe(RunOptions& o, SchemaVisitor& v) {
  v.text("name", o.name, {}, "Name of the run.");
  v.text("dir", o.dir, {.empty_word = "auto"},
         "Folder for everything the run leaves behind; `auto` is `runs/NAME`.");
  v.integer("seed", o.seed, {}, "Seed of weights, data order, dropout and noise.");
  v.boolean("deterministic", o.deterministic,
            "The same bits for every ZeRO stage and CPU backend, at some cost in stages 0 and 1.");
  v.integer("threads", o.threads, {.min = 1, .max = 4096, .zero_word = "auto"},
            "Threads per rank; `auto` shares the cores of the CPU masks among the local ranks.");
}

static void describe(TokenizerOptions& o, SchemaVisitor& v) {
  v.choice("type", o.type, {{"byte"}, {"bpe", "huggingface", "sentencepiece"}},
           "`byte`: 256 tokens, one per byte.");
  v.text("path", o.path, {.empty_word = "~", .null_is_empty = true},
         "File of the tokenizer; `byte` has none.");
}

static void describe(ModelOptions& o, SchemaVisitor& v) {
  v.choice("family", o.family, {{"llama", "gpt2", "mixtral"}, {}},
           "Architecture. `mixtral` is llama with experts in every block.");
  v.integer("num_layers", o.num_layers, {.min = 1}, "Transformer blocks.");
  v.integer("hidden_size", o.hidden_size, {.min = 1}, "Width; a multiple of `num_heads`.");
  v.integer("num_heads", o.num_heads, {.min = 1}, "Attention heads.");
  v.integer("num_kv_heads", o.num_kv_heads, {.min = 1, .zero_word = "auto"},
            "Heads of keys and values; divides `num_heads`. `auto` is `num_heads`.");
  v.integer(
      "intermediate_size", o.intermediate_size, {.min = 1, .zero_word = "auto"},
      "Width of the MLP or of one expert. `auto` is 4 × hidden (gpt2) or 8/3 × hidden rounded "
      "up to a multiple of 8.");
  v.integer("vocab_size", o.vocab_size, {.min = 1, .zero_word = "auto"},
            "Rows of the embedding; `auto` is the tokenizer's size.");
  v.integer("max_seq_len", o.max_seq_len, {.min = 1}, "Longest sequence the model takes.");
  v.number("rope_theta", o.rope_theta, kPositive, "Base of the rotary positions.");
  v.number("norm_eps", o.norm_eps, kNotNegative, "Added to the variance in norms.");
  v.boolean("tie_embeddings", o.tie_embeddings, "The head uses the embedding's weights.");
  v.number("dropout", o.dropout, kBelowOne, "Probability of dropping an activation.");
  v.number("init_std", o.init_std, kNotNegative, "Standard deviation of the initial weights.");
  v.section("tokenizer", o.tokenizer, "How text becomes tokens.");
}

static void describe(MoeOptions& o, SchemaVisitor& v) {
  v.integer("num_experts", o.num_experts, {.min = 1}, "Experts per layer.");
  v.integer("top_k", o.top_k, {.min = 1}, "Experts per token; at most `num_experts`.");
  v.number("capacity_factor", o.capacity_factor, kPositive,
           "Room per expert in training, as a multiple of an even share.");
  v.number("eval_capacity_factor", o.eval_capacity_factor, kPositive, "The same in evaluations.");
  v.integer("min_capacity", o.min_capacity, {}, "Least room per expert, in tokens.");
  v.boolean("drop_tokens", o.drop_tokens, "Drop the routes beyond the capacity; else keep all.");
  v.number("aux_loss_coef", o.aux_loss_coef, kNotNegative, "Weight of the load-balance loss.");
  v.choice("aux_loss_scope", o.aux_loss_scope, {{"local", "global"}, {}},
           "Balance over the rank's own tokens, or over those of all ranks.");
  v.number("z_loss_coef", o.z_loss_coef, kNotNegative, "Weight of the router's z-loss.");
  v.number("jitter", o.jitter, {.min = 0, .max = 1, .only_default = true},
           "Multiplicative noise on the router's input.");
  v.boolean("second_choice_sampling", o.second_choice_sampling,
            "Gumbel noise on the second choice, in training only.");
  v.integer("expert_parallel_size", o.expert_parallel_size, {.min = 1, .zero_word = "auto"},
            "Ranks that share one set of experts; divides the ranks and `num_experts`. `auto` is "
            "the largest such size.");
  v.integer("every_n_layers", o.every_n_layers, {.min = 1}, "Every n-th block has experts.");
  v.choice("drop_policy", o.drop_policy, {{"position", "probs"}, {}},
           "Which routes are dropped: those that come last, or (from `top_k` 3 on) the least "
           "probable ones.");
}

static void describe(TrainerOptions& o, SchemaVisitor& v) {
  v.choice("backend", o.backend, {{"tessera", "deepspeed"}, {}},
           "`deepspeed` is accepted and means the same engine.");
  v.integer("zero_stage", o.zero_stage, {.min = 0, .max = 3},
            "0 replicas, 1 optimizer state, 2 also gradients, 3 also parameters partitioned.");
  v.integer("micro_batch_size", o.micro_batch_size,
            {.min = 1, .max = kMaxBatch, .zero_word = "auto"},
            "Sequences per rank and micro step.");
  v.integer("gradient_accumulation_steps", o.gradient_accumulation_steps,
            {.min = 1, .max = kMaxBatch, .zero_word = "auto"}, "Micro steps per optimizer step.");
  v.integer("train_batch_size", o.train_batch_size,
            {.min = 1, .max = kMaxBatch, .zero_word = "auto"},
            "Sequences per optimizer step: micro × accumulation × ranks.");
  v.integer("max_steps", o.max_steps, {}, "Optimizer steps of the run.");
  v.integer("log_interval", o.log_interval, {}, "Steps between progress lines; 0 = none.");
  v.integer("eval_interval", o.eval_interval, {}, "Steps between evaluations; 0 = none.");
  v.integer("eval_batches", o.eval_batches, {.min = 1},
            "Most micro batches per rank in one evaluation.");
  v.choice("activation_checkpointing", o.activation_checkpointing, {{"none", "block"}, {}},
           "`block` keeps only the inputs of blocks and computes the rest again in backward.");
  v.future({"tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size"});
}

static void describe(PrecisionOptions& o, SchemaVisitor& v) {
  v.choice("compute", o.compute, {{"fp32"}, {"bf16", "fp16", "fp8"}},
           "Type that forward and backward compute in.");
  v.future({"fp8", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
            "consecutive_hysteresis", "min_loss_scale"});
}

static void describe(OptimizerOptions& o, SchemaVisitor& v) {
  v.choice("type", o.type, {{"adamw", "adam", "sgd"}, {}},
           "`adam` adds the decay to the gradient, `adamw` to the update.");
  v.number("lr", o.lr, kNotNegative, "Peak learning rate.");
  v.pair("betas", o.beta1, o.beta2, kBelowOne, "Decay of the two moments.");
  v.number("eps", o.eps, kPositive, "Added to the root of the second moment.");
  v.number("weight_decay", o.weight_decay, kNotNegative, "Not applied to norms and biases.");
  v.number("momentum", o.momentum, kBelowOne, "For `sgd` only.");
  v.number("grad_clip", o.grad_clip, {}, "Largest global gradient norm; 0 or less = off.");
}

static void describe(SchedulerOptions& o, SchemaVisitor& v) {
  v.choice("type", o.type, {{"constant", "linear", "cosine", "wsd", "inverse_sqrt"}, {}},
           "Course of the learning rate after the warm-up.");
  v.integer("warmup_steps", o.warmup_steps, {}, "Steps of linear rise; at most `total_steps`.");
  v.integer("total_steps", o.total_steps, {.min = 1, .zero_word = "auto"},
            "Steps until the final rate; `auto` is `trainer.max_steps`.");
  v.number("min_lr_ratio", o.min_lr_ratio, kShare, "Final rate as a share of `optimizer.lr`.");
  v.number("decay_ratio", o.decay_ratio, kShare, "`wsd`: share of `total_steps` that decays.");
}

static void describe(DataOptions& o, SchemaVisitor& v) {
  v.texts("train", o.train, "Files or patterns to train on, relative to the working directory.");
  v.texts("eval", o.eval, "Files or patterns to evaluate on; `[]` holds out the end of `train`.");
  v.number("eval_fraction", o.eval_fraction, kBelowOne,
           "Share of `train` that is held out where `eval` is empty.");
  v.choice("format", o.format, {{"text"}, {"tokens", "jsonl", "parquet"}}, "Format of the files.");
  v.integer("seq_len", o.seq_len, {.min = 1}, "Tokens per sequence; at most `model.max_seq_len`.");
  v.boolean("shuffle", o.shuffle, "Shuffle the sequences, anew in every epoch.");
}

static void describe(CheckpointOptions& o, SchemaVisitor& v) {
  v.text("dir", o.dir, {.empty_word = "auto"}, "Folder; `auto` is `checkpoints` in `run.dir`.");
  v.integer("save_interval", o.save_interval, {},
            "Steps between checkpoints; 0 = none, also not at the end.");
  v.integer("keep_last", o.keep_last, {}, "Checkpoints to keep; 0 = all, 1 gives a warning.");
  v.boolean("save_on_signal", o.save_on_signal,
            "Save before stopping on a signal or the file `stop` in `run.dir`.");
  v.boolean("async", o.async, "Write in the background; only `false` in this version.");
  v.choice("page_size", o.page_size, {{"auto"}, {}},
           "Alignment of the blocks: 4 KiB, or 2 MiB on GPUs that profit.");
  v.integer("compression_level", o.compression_level, {.min = 1, .max = 19},
            "zstd level of what compresses.");
}

static void describe(OffloadOptions& o, SchemaVisitor& v) {
  v.choice("device", o.device, {{"none"}, {"cpu", "nvme"}}, "Where optimizer state rests.");
}

static void describe(ZeroOptions& o, SchemaVisitor& v) {
  v.integer("prefetch_units", o.prefetch_units, {.min = 0, .max = 1024},
            "Units gathered ahead of use; 0 = none.");
  v.integer("persistence_threshold", o.persistence_threshold, {.min = 0, .max = kAny},
            "Parameters of fewer elements stay whole on every rank.");
  v.choice("shard_group", o.shard_group, {{"world"}, {"node"}}, "Ranks that share one copy.");
  v.section("offload_optimizer", o.offload_optimizer, "Optimizer state outside the device.");
  v.future({"hpz_partition_size", "offload_param"});
}

static void describe(CommOptions& o, SchemaVisitor& v) {
  v.choice("backend", o.backend, {{"auto", "local", "mpi"}, {"nccl"}},
           "`local`: ranks are threads of one process.");
  v.number("timeout_s", o.timeout_s, {.min = 0, .max = 1e7, .open_min = true},
           "Seconds after which a wait for other ranks is an error.");
  v.integer("window_bytes", o.window_bytes, {.min = 4096, .max = std::int64_t{1} << 40},
            "Shared-memory staging per rank and communicator.");
}

static void describe(FaultInjection& o, SchemaVisitor& v) {
  v.integer("step", o.step, {.min = 1}, "At the start of this optimizer step; 1 = the first.");
  v.integer("rank", o.rank, {}, "The rank it happens on.");
  v.choice("action", o.action, {{"throw", "exit", "kill", "stall"}, {}}, "What happens.");
}

static void describe(DebugOptions& o, SchemaVisitor& v) {
  v.list("inject", o.inject, "Faults on purpose.");
}

static void describe(ActivationCheckpointingAlias& o, SchemaVisitor& v) {
  v.boolean("partition_activations", o.partition_activations,
            "`true` means `trainer.activation_checkpointing: block`.");
  v.future({"cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints",
            "synchronize_checkpoint_boundary", "profile"});
}

void describe(Document& document, SchemaVisitor& v) {
  Config& c = document.config;
  v.section("run", c.run, "Identity of the run, and what holds for all of it.");
  v.section("model", c.model, "The architecture.");
  v.optional_section("moe", c.moe, "Mixture of experts; without this section the model is dense.");
  v.section("trainer", c.trainer, "The training loop.");
  v.section("precision", c.precision, "Number formats.");
  v.section("optimizer", c.optimizer, "The optimizer.");
  v.section("scheduler", c.scheduler, "The learning rate over time.");
  v.section("data", c.data, "What to train on.");
  v.section("checkpoint", c.checkpoint, "Checkpoints.");
  v.section("zero", c.zero, "Partitioning of parameters, gradients and optimizer state.");
  v.section("comm", c.comm, "Communication between ranks.");
  v.choice("device", c.device, {{"auto", "cpu"}, {"cuda"}}, "Where the work is done.");
  v.section("debug", c.debug, "Faults on purpose, for tests and drills.");
  v.optional_section("activation_checkpointing", document.activation_checkpointing,
                     "Another spelling of `trainer.activation_checkpointing`.");
  v.future({"fallback", "health"});
}

}  // namespace tessera::config
