#include <tessera/moe.hpp>

#include <numeric>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "moe/capacity.hpp"
#include "moe/dispatch.hpp"
#include "moe/experts.hpp"
#include "moe/host_copy.hpp"
#include "moe/router.hpp"

namespace tessera::nn {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) result.push_back(d);
  }
  return result;
}

void check(const MoeOptions& options) {
  if (options.num_experts < 1) {
    fail(ErrorCode::kUsage, "moe.num_experts is {}; at least 1 is needed", options.num_experts);
  }
  if (options.top_k < 1 || options.top_k > options.num_experts) {
    fail(ErrorCode::kUsage, "moe.top_k is {}; with {} experts it must be 1 to {}", options.top_k,
         options.num_experts, options.num_experts);
  }
  if (options.capacity_factor <= 0.0 || options.eval_capacity_factor <= 0.0 ||
      options.min_capacity < 0) {
    fail(ErrorCode::kUsage,
         "moe.capacity_factor {} and moe.eval_capacity_factor {} must be above 0, "
         "moe.min_capacity {} not below 0",
         options.capacity_factor, options.eval_capacity_factor, options.min_capacity);
  }
  if (options.aux_loss_scope != "local" && options.aux_loss_scope != "global") {
    fail(ErrorCode::kUsage, "moe.aux_loss_scope is \"{}\"; local and global are known",
         options.aux_loss_scope);
  }
  if (options.drop_policy != "position" && options.drop_policy != "probs") {
    fail(ErrorCode::kUsage, "moe.drop_policy is \"{}\"; position and probs are known",
         options.drop_policy);
  }
  if (options.jitter != 0.0) {
    fail(ErrorCode::kUsage, "moe.jitter is {}; noise on the router's input is not available",
         options.jitter);
  }
}

// A key per (job, layer).
std::uint64_t noise_key(std::uint64_t seed, std::string_view layer) {
  const Philox4 block = philox(seed, hash_name(layer), hash_name("moe.second_choice"));
  return block.word[0] | static_cast<std::uint64_t>(block.word[1]) << 32;
}

}  // namespace

MoE::MoE(const MoeOptions& options, std::int64_t hidden, std::int64_t intermediate, float init_std,
         float output_init_std)
    : options_(options), hidden_(hidden), num_local_(options.num_experts) {
  check(options_);
  gate = register_module("gate",
                         std::make_shared<Linear>(hidden, options_.num_experts, false, init_std));
  experts = register_module(
      "experts", std::make_shared<Experts>(options_.num_experts, hidden, intermediate, init_std,
                                           output_init_std));
}

MoE::~MoE() = default;

void MoE::on_bind(const Binding& binding) {
  expert_group_ = binding.expert;
  data_group_ = binding.data;
  const int ranks = expert_group_ == nullptr ? 1 : expert_group_->size();
  if (options_.num_experts % ranks != 0) {
    fail(ErrorCode::kUsage,
         "{} experts cannot be shared out evenly over {} expert-parallel ranks; possible: {}",
         options_.num_experts, ranks, fmt::join(divisors(options_.num_experts), ", "));
  }
  num_local_ = options_.num_experts / ranks;
  first_local_ = expert_group_ == nullptr ? 0 : expert_group_->rank() * num_local_;
}

std::string MoE::layer_name() const {
  constexpr std::string_view kSuffix = ".gate.weight";
  const std::string& name = gate->weight->name;
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : std::string();
}

Variable MoE::forward(const Variable& input) {
  Context& owner = context();
  const std::string name = layer_name();
  if (input.shape().rank() < 2 || input.size(-1) != hidden_) {
    fail(ErrorCode::kUsage, "an MoE layer of width {} was given {}", hidden_,
         input.shape().to_string());
  }

  const bool noise = options_.second_choice_sampling && options_.top_k == 2 && owner.training();
  const moe::TokenSet tokens = moe::find_tokens(owner, input.shape(), noise);
  kernels::RouteOptions route;
  route.top_k = options_.top_k;
  route.probs_policy = options_.top_k >= 3 && options_.drop_policy == "probs";
  route.sample_second = noise;
  route.noise_index = tokens.noise_index;
  if (noise) route.seed = noise_key(owner.seed, name);
  if (options_.drop_tokens) {
    route.capacity = moe::expert_capacity(
        tokens.routed, options_.num_experts, options_.top_k,
        owner.training() ? options_.capacity_factor : options_.eval_capacity_factor,
        options_.min_capacity);
  }
  const bool global =
      options_.aux_loss_scope == "global" && data_group_ != nullptr && data_group_->size() > 1;
  const moe::Routed routed = moe::route_tokens(
      input, gate->weight, {options_, route, tokens, global ? data_group_ : nullptr, name});

  moe::DispatchPlan plan =
      moe::make_dispatch_plan(routed.choice, routed.position, options_.num_experts, options_.top_k);
  const auto rows = static_cast<std::int64_t>(plan.token.size());
  const auto journey = std::make_shared<const moe::Journey>(
      moe::Journey{moe::copy_to_device(owner.stream(), owner.device(), std::move(plan.slot),
                                       routed.routing.choice.shape(), DType::kI32),
                   moe::copy_to_device(owner.stream(), owner.device(), std::move(plan.token),
                                       Shape{rows}, DType::kI32),
                   moe::ExpertExchange(owner, expert_group_, plan.counts, name)});

  const Variable at_experts = moe::dispatch(input, journey);
  Variable results;
  {
    const UnitScope scope(*experts);
    std::vector<moe::ExpertWeights> weights;
    for (int e = first_local_; e < first_local_ + num_local_; ++e) {
      const Expert& expert = *experts->expert[static_cast<std::size_t>(e)];
      weights.push_back({expert.w1->weight, expert.w3->weight, expert.w2->weight});
    }
    results = moe::run_experts(at_experts, weights, journey->exchange.expert_rows());
  }
  Variable output = moe::combine(results, routed.weight, input.shape(), journey);

  if (!owner.recomputing()) {
    const std::int64_t all =
        std::accumulate(routed.counts.begin(), routed.counts.end(), std::int64_t{0});
    owner.moe_reports.push_back({.layer = name,
                                 .expert_tokens = routed.counts,
                                 .tokens = tokens.routed,
                                 .dropped_routes = all - rows,
                                 .aux_loss = routed.aux_loss,
                                 .z_loss = routed.z_loss});
  }
  return output;
}

}  // namespace tessera::nn
