#include "support/tiny_run.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

#include <unistd.h>

#include "base/philox.hpp"

namespace tessera::testing {

namespace {

constexpr int kGlobalBatch = 48;

std::string scratch_root() {
  static const std::string root = [] {
    const auto path =
        std::filesystem::temp_directory_path() / ("tessera-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(path);
    return path.string();
  }();
  return root;
}

}  // namespace

std::string tiny_text() {
  static const std::string path = [] {
    const std::vector<std::string> words{"tile",   "mosaic", "rank", "shard", "gather", "release",
                                         "expert", "token",  "step", "loss",  "gate",   "unit"};
    std::string text;
    for (std::uint64_t i = 0; text.size() < 60000; ++i) {
      text += words[philox(7, i, 0).word[0] % words.size()];
      text += i % 11 == 10 ? ".\n" : " ";
    }
    const std::string file = scratch_root() + "/text.txt";
    std::ofstream(file) << text;
    return file;
  }();
  return path;
}

std::string fresh_directory(const std::string& name) {
  const std::string path = scratch_root() + "/" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

Config tiny_config(const TinyRun& run) {
  Config config;
  config.run.dir = scratch_root() + "/run";
  config.run.deterministic = run.deterministic;
  config.model.num_layers = 2;
  config.model.hidden_size = 24;
  config.model.num_heads = 4;
  config.model.num_kv_heads = 2;
  config.model.intermediate_size = 40;
  config.model.vocab_size = 131;
  config.model.max_seq_len = 16;
  config.model.tie_embeddings = run.tied;
  config.model.dropout = run.dropout;
  config.model.init_std = 0.1;
  if (run.moe) {
    MoeOptions moe;
    moe.num_experts = 4;
    moe.drop_tokens = false;
    moe.aux_loss_scope = "global";
    moe.aux_loss_coef = run.aux_coef;
    moe.expert_parallel_size = run.expert_ranks;
    config.moe = moe;
  }
  config.trainer.zero_stage = run.stage;
  config.trainer.train_batch_size = kGlobalBatch;
  config.trainer.gradient_accumulation_steps = run.accumulation;
  config.trainer.max_steps = run.steps;
  config.trainer.activation_checkpointing = run.checkpointing;
  config.optimizer.type = run.optimizer;
  config.optimizer.lr = run.lr;
  config.optimizer.weight_decay = 0.01;
  config.optimizer.grad_clip = run.grad_clip;
  config.scheduler.type = "cosine";
  config.scheduler.warmup_steps = 3;
  config.scheduler.total_steps = 40;
  config.data.train = {tiny_text()};
  config.data.seq_len = 16;
  config.zero.persistence_threshold = run.persistence_threshold;
  config.zero.prefetch_units = run.prefetch_units;
  config.checkpoint.dir = run.checkpoint_dir;
  config.checkpoint.save_interval = run.checkpoint_dir.empty() ? 0 : 1000;
  config.comm.timeout_s = 60.0;
  return config;
}

TinyResult train_tiny(const TinyRun& run) {
  TinyResult result;
  std::mutex mutex;
  WorldOptions options;
  options.cpu.threads = 1;
  options.cpu.stream_mode = run.stream_mode;
  options.cpu.poison = run.poison;
  options.comm.timeout_s = 60.0;
  run_ranks(run.ranks, options, [&](World& world) {
    Config config = tiny_config(run);
    resolve_for_ranks(config, world.size());
    auto model = models::make(config.model, config.moe);
    Engine engine(world, *model, config);
    DataLoader data(config, world);
    std::vector<StepResult> steps;
    const auto loop = [&](std::int64_t until) {
      while (engine.step() < until) {
        const StepData step = data.next_step();
        engine.begin_step(step.counts());
        for (const MicroBatch& micro : step) engine.backward(model->loss(micro));
        steps.push_back(engine.apply());
      }
    };
    if (run.checkpoint_dir.empty()) {
      loop(run.steps);
    } else {
      TrainingCheckpoints checkpoints(config, world, engine, data);
      if (run.resume) checkpoints.resume_latest();
      loop(run.first_run_steps > 0 ? run.first_run_steps : run.steps);
      if (run.first_run_steps > 0) checkpoints.save();
    }
    const std::string name = run.moe ? "model.layers.1.block_sparse_moe.experts.3.w2.weight"
                                     : "model.layers.1.mlp.down_proj.weight";
    const std::vector<float> weight = engine.full_parameter(name);
    const double eval_loss = engine.evaluate(data.eval_batches(2));
    if (world.rank() == 0) {
      const std::lock_guard lock(mutex);
      result.steps = std::move(steps);
      result.some_weight = weight;
      result.eval_loss = eval_loss;
      result.memory = world.device().memory_usage();
    }
  });
  return result;
}

std::vector<double> losses(const TinyResult& result) {
  std::vector<double> values;
  for (const StepResult& step : result.steps) values.push_back(step.loss);
  return values;
}

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

}  // namespace tessera::testing
