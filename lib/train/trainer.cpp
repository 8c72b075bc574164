#include "train/trainer.hpp"

#include <tessera/data.hpp>
#include <tessera/engine.hpp>
#include <tessera/models.hpp>
#include <tessera/training_checkpoints.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/agreement.hpp"
#include "base/check.hpp"
#include "base/env.hpp"
#include "train/fault_injection.hpp"
#include "train/metrics.hpp"
#include "train/progress.hpp"
#include "train/stop.hpp"

namespace tessera {

namespace {

/// So many steps in a row without finite gradients end the run: FP32 has no wider type to turn to.
constexpr int kHopelessSteps = 3;

bool lies_in(const std::string& path, const std::string& directory) {
  const auto canonical = [](const std::string& name) {
    return std::filesystem::weakly_canonical(name).string();
  };
  return canonical(path).starts_with(canonical(directory));
}

/// One rank's run: the pieces, and the loop over them.
class Trainer {
 public:
  Trainer(World& world, const Config& config)
      : world_(world),
        config_(config),
        model_(models::make(config.model, config.moe)),
        data_(config, world),
        engine_(world, *model_, config),
        checkpoints_(config, world, engine_, data_) {}

  int train(const std::string& resume);
  double load_and_evaluate(const std::string& checkpoint, std::int64_t* step);

 private:
  /// Rank 0 acts; an error it meets is everybody's.
  void on_root(std::string_view what, const std::function<void()>& action) {
    decide_on_root(world_.comm(), what, [&] {
      action();
      return std::string();
    });
  }
  void set_aside_after(std::int64_t step) {
    const std::int64_t moved = checkpoints_.set_aside_after(step);
    if (moved == 0) return;
    say(fmt::format("set aside {} checkpoints of later steps in {}/set-aside", moved,
                    checkpoints_.directory()));
  }
  void prepare_folder();
  void start(const std::string& resume);
  void say(const std::string& text) {
    if (progress_) progress_->clear_line();
    if (world_.rank() == 0) world_.logger().info(text);
  }
  void one_step();
  void evaluate_if_due(bool last);
  void save_if_due(bool last, bool stopping);
  void summary(StopReason reason);

  World& world_;
  const Config& config_;
  std::unique_ptr<Model> model_;
  DataLoader data_;
  Engine engine_;
  TrainingCheckpoints checkpoints_;
  std::unique_ptr<MetricsFile> metrics_;  // rank 0
  std::unique_ptr<Progress> progress_;    // rank 0
  std::optional<double> first_loss_;
  double last_loss_ = 0.0;
  int nonfinite_steps_ = 0;  // in a row
  std::optional<double> eval_loss_;
};

void Trainer::prepare_folder() {
  on_root("run folder", [&] { Env::posix().make_directories(config_.run.dir); });
  world_.set_logger(make_logger(world_.rank(), LogLevel::kInfo,
                                world_.rank() == 0 ? join_path(config_.run.dir, "log.txt") : ""));
}

void Trainer::start(const std::string& resume) {
  const TrainerOptions& t = config_.trainer;
  say(fmt::format(
      "{}: {} parameters, {} ranks x {} threads ({}), ZeRO stage {}{}, batch {} = {} x {} x {}",
      config_.run.name, engine_.parameter_elements(), world_.size(), world_.device().threads(),
      world_.comm().backend(), t.zero_stage,
      config_.moe ? fmt::format(", {} experts over {} ranks", config_.moe->num_experts,
                                config_.moe->expert_parallel_size)
                  : std::string(),
      t.train_batch_size, t.micro_batch_size, t.gradient_accumulation_steps, world_.size()));
  checkpoints_.check_writable();
  if (resume == "none") {
    say("starting from scratch");
    set_aside_after(0);
  } else if (resume == "auto") {
    const auto step = checkpoints_.resume_latest();
    say(step ? fmt::format("resumed from step {}", *step) : "starting from scratch");
  } else {
    const std::int64_t step = checkpoints_.resume(resume);
    say(fmt::format("resumed from step {} ({})", step, resume));
    // Another directory's checkpoint: whatever this one has of that step is another run's.
    set_aside_after(lies_in(resume, checkpoints_.directory()) ? step : step - 1);
  }
  on_root("metrics file", [&] {
    // Only now: a run that was refused leaves the folder's configuration as it was.
    Env::posix().write_file_atomically(join_path(config_.run.dir, "config.yaml"),
                                       config_.resolved_yaml);
    metrics_ = std::make_unique<MetricsFile>(Env::posix(), config_.run.dir, engine_.step());
    progress_ =
        std::make_unique<Progress>(world_.logger(), t.max_steps, t.log_interval, world_.size());
  });
}

void Trainer::one_step() {
  inject_faults(config_.debug, engine_.step() + 1, world_);
  const StepData step = data_.next_step();
  engine_.begin_step(step.counts());
  for (const MicroBatch& micro : step) engine_.backward(model_->loss(micro));
  const StepResult result = engine_.apply();
  if (metrics_) metrics_->write_step(result);
  if (progress_) progress_->step(result);
  if (!first_loss_) first_loss_ = result.loss;
  last_loss_ = result.loss;
  nonfinite_steps_ = std::isfinite(result.grad_norm) ? 0 : nonfinite_steps_ + 1;
  if (nonfinite_steps_ >= kHopelessSteps) {
    fail(
        ErrorCode::kGuard,
        "the gradients were not finite in {} steps in a row, up to step {}; nothing was changed by "
        "these steps, earlier checkpoints are in {}",
        nonfinite_steps_, result.step, checkpoints_.directory());
  }
}

void Trainer::evaluate_if_due(bool last) {
  const TrainerOptions& t = config_.trainer;
  if (t.eval_interval == 0 || (!last && engine_.step() % t.eval_interval != 0)) return;
  const std::vector<MicroBatch> batches = data_.eval_batches(t.eval_batches);
  if (batches.empty()) return;
  eval_loss_ = engine_.evaluate(batches);
  if (metrics_) metrics_->write_evaluation(engine_.step(), *eval_loss_);
  say(fmt::format("evaluation at step {}: loss {:.4f}", engine_.step(), *eval_loss_));
}

void Trainer::save_if_due(bool last, bool stopping) {
  const bool rescue = stopping && config_.checkpoint.save_on_signal;
  // A step that found no finite gradient is not worth a place among the last good ones.
  if ((!checkpoints_.due() && !rescue) || nonfinite_steps_ > 0) return;
  try {
    checkpoints_.save();
    say(fmt::format("saved step {} in {}", engine_.step(), checkpoints_.directory()));
  } catch (const Error& error) {
    // All ranks got the same error, and older checkpoints are untouched: a run goes on without this
    // save, but not past its end, where nothing would be left of it.
    if (last || stopping || error.code() != ErrorCode::kData) throw;
    if (world_.rank() == 0) {
      world_.logger().error(fmt::format("saving step {} failed: {}", engine_.step(), error.what()));
    }
  }
}

void Trainer::summary(StopReason reason) {
  if (world_.rank() != 0) return;
  progress_->clear_line();
  const bool finished = engine_.step() >= config_.trainer.max_steps;
  say(fmt::format(
      "{} at step {} after {:.1f} s: loss {}, {} tokens, {:.0f} tokens/s, {} steps skipped{}",
      finished ? "finished"
               : (reason == StopReason::kFile ? "stopped by file" : "stopped by signal"),
      engine_.step(), progress_->seconds(),
      first_loss_ ? fmt::format("{:.4f} -> {:.4f}", *first_loss_, last_loss_) : "unchanged",
      progress_->tokens(),
      static_cast<double>(progress_->tokens()) / std::max(1e-9, progress_->seconds()),
      engine_.skipped_total(),
      eval_loss_ ? fmt::format(", evaluation loss {:.4f}", *eval_loss_) : std::string()));
  say(fmt::format("run folder {}: config.yaml, metrics.jsonl, log.txt; checkpoints in {}",
                  config_.run.dir, checkpoints_.directory()));
}

int Trainer::train(const std::string& resume) {
  prepare_folder();
  const SignalCatcher signals;
  start(resume);
  const std::int64_t max_steps = config_.trainer.max_steps;
  if (engine_.step() >= max_steps) {
    say(fmt::format("nothing to do: step {} of {} is done", engine_.step(), max_steps));
  }
  StopReason reason = StopReason::kNone;
  while (engine_.step() < max_steps && reason == StopReason::kNone) {
    one_step();
    const bool last = engine_.step() >= max_steps;
    reason = agree_on_stop(world_, requested_stop(config_.run.dir, world_.rank() == 0));
    const bool stopping = !last && reason != StopReason::kNone;
    if (!stopping) evaluate_if_due(last);
    save_if_due(last, stopping);
    if (last) reason = StopReason::kNone;
  }
  if (reason == StopReason::kFile) {
    on_root("stop file", [&] { Env::posix().remove_file(join_path(config_.run.dir, "stop")); });
  }
  summary(reason);
  return exit_code(reason);
}

double Trainer::load_and_evaluate(const std::string& checkpoint, std::int64_t* step) {
  *step = checkpoints_.resume(checkpoint);
  const std::vector<MicroBatch> batches = data_.eval_batches(config_.trainer.eval_batches);
  if (batches.empty()) {
    fail(ErrorCode::kData, "there is no evaluation data (data.eval, data.eval_fraction)");
  }
  return engine_.evaluate(batches);
}

}  // namespace

int train_on_rank(World& world, const Config& config, const std::string& resume) {
  return Trainer(world, config).train(resume);
}

int evaluate_on_rank(World& world, const Config& config, const std::string& checkpoint) {
  std::int64_t step = 0;
  const double loss = Trainer(world, config).load_and_evaluate(checkpoint, &step);
  if (world.rank() == 0) {
    std::printf("{\"step\": %lld, \"eval_loss\": %s}\n", static_cast<long long>(step),
                fmt::format("{}", loss).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace tessera
