// Models with what real ones have at their edges: unused, frozen, empty and one-element parameters,
// blocks that are skipped, sizes that no number of ranks divides.
#include <mutex>

#include <catch2/catch.hpp>

#include "support/tiny_run.hpp"

namespace tessera::testing {

namespace {

/// A block with an unused, an empty and a one-element parameter beside what it uses.
class OddBlock final : public Layer {
 public:
  explicit OddBlock(std::int64_t hidden) {
    norm_ = register_module("norm", std::make_shared<nn::RMSNorm>(hidden, 1e-5));
    linear_ = register_module("linear", std::make_shared<nn::Linear>(hidden, hidden, true, 0.2f));
    unused_ = register_parameter("unused", {3, 7}, Init::normal(0.5f));
    empty_ = register_parameter("empty", {0, 5}, Init::normal(0.5f));
    single_ = register_parameter("single", {1}, Init::ones());
    set_unit();
  }
  std::shared_ptr<Parameter> frozen() const { return linear_->bias; }

 protected:
  Variable forward(const Variable& x) override {
    return ops::add(x, ops::gelu((*linear_)((*norm_)(x))));
  }

 private:
  std::shared_ptr<nn::RMSNorm> norm_;
  std::shared_ptr<nn::Linear> linear_;
  std::shared_ptr<Parameter> unused_, empty_, single_;
};

class OddModel final : public Model {
 public:
  OddModel() {
    embedding_ = register_module("embedding", std::make_shared<nn::Embedding>(131, kHidden, 0.3f));
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(
          register_module("block" + std::to_string(i), std::make_shared<OddBlock>(kHidden)));
    }
    blocks_[0]->frozen()->trainable = false;
    head_ = register_module("head", std::make_shared<nn::Linear>(kHidden, 131, false, 0.3f));
    head_->set_unit();
  }
  /// Every second step leaves block 1 out, on all ranks.
  bool skip = false;

 protected:
  Variable forward(const Tensor& tokens) override {
    Variable x = (*embedding_)(tokens);
    x = (*blocks_[0])(x);
    if (!skip) x = (*blocks_[1])(x);
    return (*head_)((*blocks_[2])(x));
  }

 private:
  static constexpr std::int64_t kHidden = 19;
  std::shared_ptr<nn::Embedding> embedding_;
  std::vector<std::shared_ptr<OddBlock>> blocks_;
  std::shared_ptr<nn::Linear> head_;
};

struct OddResult {
  std::vector<double> losses;
  std::vector<float> frozen, unused, skipped, start_of_frozen;
};

OddResult train_odd(int ranks, int stage, int accumulation) {
  OddResult result;
  std::mutex mutex;
  WorldOptions options;
  options.cpu.threads = 1;
  options.cpu.poison = true;
  options.comm.timeout_s = 60.0;
  run_ranks(ranks, options, [&](World& world) {
    TinyRun run;
    run.ranks = ranks;
    run.stage = stage;
    run.accumulation = accumulation;
    Config config = tiny_config(run);
    config.trainer.train_batch_size = 168;  // 2, 3 or 7 ranks, 1 or 4 micro batches
    config.zero.persistence_threshold = 20;
    resolve_for_ranks(config, world.size());
    OddModel model;
    Engine engine(world, model, config);
    DataLoader data(config, world);
    const std::vector<float> start = engine.full_parameter("block0.linear.bias");
    std::vector<double> losses;
    for (int i = 0; i < 8; ++i) {
      model.skip = i % 2 == 1;
      const StepData step = data.next_step();
      engine.begin_step(step.counts());
      for (const MicroBatch& micro : step) engine.backward(model.loss(micro));
      losses.push_back(engine.apply().loss);
    }
    const std::vector<float> frozen = engine.full_parameter("block0.linear.bias");
    const std::vector<float> unused = engine.full_parameter("block2.unused");
    const std::vector<float> skipped = engine.full_parameter("block1.linear.weight");
    if (world.rank() == 0) {
      const std::lock_guard lock(mutex);
      result = {losses, frozen, unused, skipped, start};
    }
  });
  return result;
}

}  // namespace

TEST_CASE("Odd models train alike in every layout", "[odd]") {
  const OddResult reference = train_odd(1, 0, 1);
  REQUIRE(reference.losses.back() < reference.losses.front());
  CHECK(reference.frozen == reference.start_of_frozen);
  for (const int ranks : {2, 3, 7}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int accumulation : {1, 4}) {
        INFO("ranks " << ranks << " stage " << stage << " accumulation " << accumulation);
        const OddResult result = train_odd(ranks, stage, accumulation);
        CHECK(largest_relative_difference(result.losses, reference.losses) <= 2e-5);
        CHECK(result.frozen == reference.start_of_frozen);
        CHECK(result.unused == reference.unused);
        REQUIRE(result.skipped.size() == reference.skipped.size());
        for (std::size_t i = 0; i < result.skipped.size(); ++i) {
          if (std::abs(result.skipped[i] - reference.skipped[i]) > 1e-5f) {
            FAIL_CHECK("block1.linear.weight differs at " << i);
            break;
          }
        }
      }
    }
  }
}

TEST_CASE("Sixty-four ranks share a tiny model", "[odd]") {
  WorldOptions options;
  options.cpu.threads = 1;
  options.comm.timeout_s = 120.0;
  std::vector<double> losses(64);
  run_ranks(64, options, [&](World& world) {
    TinyRun run;
    run.ranks = 64;
    Config config = tiny_config(run);
    config.trainer.train_batch_size = 64;
    resolve_for_ranks(config, world.size());
    auto model = models::make(config.model, config.moe);
    Engine engine(world, *model, config);
    DataLoader data(config, world);
    for (int i = 0; i < 2; ++i) {
      const StepData step = data.next_step();
      engine.begin_step(step.counts());
      for (const MicroBatch& micro : step) engine.backward(model->loss(micro));
      losses[static_cast<std::size_t>(world.rank())] = engine.apply().loss;
    }
  });
  for (const double loss : losses) CHECK(loss == losses.front());
  CHECK(losses.front() > 0.0);
}

TEST_CASE("Ranks that use different units are stopped, with both named", "[odd]") {
  WorldOptions options;
  options.cpu.threads = 1;
  options.comm.timeout_s = 20.0;
  std::string message;
  try {
    run_ranks(2, options, [&](World& world) {
      TinyRun run;
      Config config = tiny_config(run);
      resolve_for_ranks(config, world.size());
      OddModel model;
      Engine engine(world, model, config);
      DataLoader data(config, world);
      model.skip = world.rank() == 1;
      const StepData step = data.next_step();
      engine.begin_step(step.counts());
      for (const MicroBatch& micro : step) engine.backward(model.loss(micro));
      engine.apply();
    });
  } catch (const Error& error) {
    message = error.what();
  }
  INFO(message);
  CHECK(message.find("block1") != std::string::npos);
  CHECK(message.find("block2") != std::string::npos);
}

}  // namespace tessera::testing
