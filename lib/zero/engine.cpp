#include <tessera/engine.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "zero/engine_impl.hpp"

namespace tessera {

namespace {

/// A text that is equal exactly when two models have the same architecture, names and shapes.
std::string describe(Model& model, const Config& config) {
  const ModelOptions& m = config.model;
  std::string text = fmt::format("{} layers={} hidden={} heads={}/{} theta={} eps={} tied={}\n",
                                 m.family, m.num_layers, m.hidden_size, m.num_heads, m.num_kv_heads,
                                 m.rope_theta, m.norm_eps, m.tie_embeddings);
  if (config.moe) text += fmt::format("top_k={}\n", config.moe->top_k);
  std::vector<std::string> lines;
  for (const auto& parameter : model.parameters()) {
    lines.push_back(parameter->name + " " + parameter->shape.to_string() + "\n");
  }
  std::ranges::sort(lines);
  for (const std::string& line : lines) text += line;
  return text;
}

void check_stage(int stage) {
  if (stage < 0 || stage > 3) {
    fail(ErrorCode::kUsage, "trainer.zero_stage {} (0, 1, 2 or 3)", stage);
  }
}

}  // namespace

Engine::Impl::Impl(World& the_world, Model& the_model, const Config& the_config)
    : world(the_world),
      model(the_model),
      config(the_config),
      context(the_world.device()),
      mesh(the_world.comm(),
           mesh_shape(the_world.size(), the_config.moe ? &*the_config.moe : nullptr)),
      optimizer(the_config.optimizer),
      schedule(the_config.scheduler, the_config.optimizer.lr, the_config.trainer.max_steps) {
  check_stage(config.trainer.zero_stage);
  plans = plan_units(model, config.zero.persistence_threshold, mesh.expert().size(),
                     mesh.expert().rank());
  const std::string description = describe(model, config);
  fingerprint = fmt::format("{:016x}", hash_name(description));
  for (const std::string& other : world.comm().all_gather_bytes(fingerprint, "model")) {
    if (other != fingerprint) {
      fail(ErrorCode::kUsage, "ranks were given different models ({} and {})", fingerprint, other);
    }
  }

  Binding binding;
  binding.context = &context;
  binding.seed = config.run.seed;
  binding.data = &mesh.data();
  binding.expert = mesh.shape().expert > 1 ? &mesh.expert() : nullptr;
  context.seed = config.run.seed;
  model.bind(binding);
  model.set_activation_checkpointing(config.trainer.activation_checkpointing == "block");

  UnitSettings settings;
  settings.stage = config.trainer.zero_stage;
  settings.reduce_each_micro_step = config.run.deterministic;
  settings.seed = config.run.seed;
  settings.optimizer_states = optimizer.state_names().size();
  for (const UnitPlan& plan : plans) {
    if (plan.parameters.empty()) {
      units.push_back(nullptr);
      continue;
    }
    Communicator& group = plan.expert ? mesh.expert_data() : mesh.data();
    units.push_back(std::make_unique<ShardedUnit>(plan.name, plan.parameters, group, context,
                                                  settings, plan.whole));
  }
  pending_uses_.resize(plans.size());
  context.set_hooks(this);
  context.stream().synchronize();
}

Engine::Engine(World& world, Model& model, const Config& config)
    : impl_(std::make_unique<Impl>(world, model, config)) {}

Engine::~Engine() = default;

void Engine::begin_step(const TokenCounts& counts) { impl_->begin_step(counts); }
void Engine::backward(const Loss& loss) { impl_->backward(loss); }
StepResult Engine::apply() { return impl_->apply(); }
double Engine::evaluate(std::span<const MicroBatch> batches) { return impl_->evaluate(batches); }
std::int64_t Engine::step() const { return impl_->step; }
std::int64_t Engine::skipped_total() const { return impl_->skipped; }
Context& Engine::context() const { return impl_->context; }
std::string Engine::fingerprint() const { return impl_->fingerprint; }

std::int64_t Engine::parameter_elements() const {
  std::int64_t total = 0;
  for (const auto& parameter : impl_->model.parameters()) total += parameter->shape.elements();
  return total;
}

}  // namespace tessera
