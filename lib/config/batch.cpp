// The batch: train_batch_size = micro_batch_size x gradient_accumulation_steps x ranks.
#include <tessera/error.hpp>
#include <tessera/options.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "config/checks.hpp"

namespace tessera {

namespace {

using config::key_context;

std::string shown(std::int64_t value) { return value == 0 ? "auto" : std::to_string(value); }

// All divisors of `value` up to `limit`, at most about a dozen: the smallest and the largest.
std::string divisors(std::int64_t value, std::int64_t limit) {
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  for (std::int64_t d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    if (d <= limit) small.push_back(d);
    if (d != value / d && value / d <= limit) large.insert(large.begin(), value / d);
  }
  small.insert(small.end(), large.begin(), large.end());
  if (small.size() <= 12) return fmt::format("{}", fmt::join(small, ", "));
  return fmt::format("{}, …, {}", fmt::join(small.begin(), small.begin() + 8, ", "),
                     fmt::join(small.end() - 3, small.end(), ", "));
}

// The first of the three keys that was given, as context.
std::string batch_context(const Config& config) {
  for (const char* key : {"trainer.train_batch_size", "trainer.micro_batch_size",
                          "trainer.gradient_accumulation_steps"}) {
    if (config.origins.contains(key)) return key_context(config, key);
  }
  return key_context(config, "trainer.train_batch_size");
}

[[noreturn]] void refuse_batch(const Config& config, int ranks, const std::string& allowed) {
  const TrainerOptions& t = config.trainer;
  throw Error(ErrorCode::kUsage,
              fmt::format("train_batch_size {} = micro_batch_size {} x gradient_accumulation_steps "
                          "{} x {} ranks cannot be met; allowed: {}",
                          shown(t.train_batch_size), shown(t.micro_batch_size),
                          shown(t.gradient_accumulation_steps), ranks, allowed),
              batch_context(config));
}

// Multiplies with a limit far above any real batch.
std::int64_t product(const Config& config, std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 50;
  if (a > kLimit / b) {
    throw Error(ErrorCode::kUsage, fmt::format("the batch {} x {} is too large", a, b),
                batch_context(config));
  }
  return a * b;
}

void resolve_batch(Config& config, int ranks) {
  TrainerOptions& t = config.trainer;
  const std::int64_t train = t.train_batch_size;
  std::int64_t& micro = t.micro_batch_size;
  std::int64_t& accumulation = t.gradient_accumulation_steps;
  if (train == 0) {
    if (micro == 0) micro = 1;
    if (accumulation == 0) accumulation = 1;
    t.train_batch_size = product(config, product(config, micro, accumulation), ranks);
    return;
  }
  // What one step of one rank has to hold, where the batch can be dealt evenly.
  const std::int64_t per_rank = train / ranks;
  if (train % ranks != 0) {
    const std::int64_t near = std::max<std::int64_t>(1, per_rank);
    refuse_batch(config, ranks,
                 fmt::format("train_batch_size a multiple of {}, such as {} or {}; or ranks {}",
                             ranks, near * ranks, (near + 1) * ranks, divisors(train, 1 << 20)));
  }
  if (micro != 0 && accumulation != 0) {
    const std::int64_t step = product(config, micro, accumulation);
    if (step != per_rank) {
      const std::int64_t wanted = product(config, step, ranks);
      std::string allowed = fmt::format("train_batch_size {}", wanted);
      if (per_rank % micro == 0) {
        allowed += fmt::format("; or gradient_accumulation_steps {}", per_rank / micro);
      }
      if (per_rank % accumulation == 0) {
        allowed += fmt::format("; or micro_batch_size {}", per_rank / accumulation);
      }
      if (train % step == 0) allowed += fmt::format("; or {} ranks", train / step);
      refuse_batch(config, ranks, allowed);
    }
    return;
  }
  if (micro == 0 && accumulation == 0) accumulation = 1;
  const bool micro_given = micro != 0;
  const std::int64_t known = micro_given ? micro : accumulation;
  if (per_rank % known != 0) {
    const std::int64_t unit = product(config, known, ranks);
    refuse_batch(config, ranks,
                 fmt::format("{} {}; or train_batch_size a multiple of {}",
                             micro_given ? "micro_batch_size" : "gradient_accumulation_steps",
                             divisors(per_rank, per_rank), unit));
  }
  (micro_given ? accumulation : micro) = per_rank / known;
}

void resolve_experts(Config& config, int ranks) {
  if (!config.moe) return;
  MoeOptions& moe = *config.moe;
  const std::int64_t common = std::gcd(moe.num_experts, ranks);
  if (moe.expert_parallel_size == 0) moe.expert_parallel_size = static_cast<int>(common);
  if (common % moe.expert_parallel_size == 0) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("expert_parallel_size {} must divide both num_experts {} and the {} ranks; "
                  "allowed: {}",
                  moe.expert_parallel_size, moe.num_experts, ranks, divisors(common, common)),
      key_context(config, "moe.expert_parallel_size"));
}

void check_faults(const Config& config, int ranks) {
  for (std::size_t i = 0; i < config.debug.inject.size(); ++i) {
    if (config.debug.inject[i].rank < ranks) continue;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("rank {} does not exist among {} ranks", config.debug.inject[i].rank, ranks),
        key_context(config, fmt::format("debug.inject[{}].rank", i)));
  }
}

}  // namespace

void resolve_for_ranks(Config& config, int ranks) {
  if (ranks < 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the number of ranks must be at least 1, not {}", ranks));
  }
  Config resolved = config;
  resolve_batch(resolved, ranks);
  resolve_experts(resolved, ranks);
  check_faults(resolved, ranks);
  resolved.resolved_yaml = config_to_yaml(resolved);
  config = std::move(resolved);
}

void check_for_any_ranks(const Config& config) {
  const TrainerOptions& t = config.trainer;
  const std::int64_t step = product(config, std::max<std::int64_t>(1, t.micro_batch_size),
                                    std::max<std::int64_t>(1, t.gradient_accumulation_steps));
  if (t.train_batch_size != 0 && t.train_batch_size % step != 0) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("train_batch_size {} = micro_batch_size {} x gradient_accumulation_steps "
                    "{} x ranks cannot be met by any number of ranks; allowed: "
                    "train_batch_size a multiple of {}",
                    t.train_batch_size, shown(t.micro_batch_size),
                    shown(t.gradient_accumulation_steps), step),
        batch_context(config));
  }
  if (config.moe && config.moe->expert_parallel_size > 1 &&
      config.moe->num_experts % config.moe->expert_parallel_size != 0) {
    throw Error(ErrorCode::kUsage,
                fmt::format("expert_parallel_size {} must divide num_experts {} and the number of "
                            "ranks; allowed for {} experts: {}",
                            config.moe->expert_parallel_size, config.moe->num_experts,
                            config.moe->num_experts,
                            divisors(config.moe->num_experts, config.moe->num_experts)),
                key_context(config, "moe.expert_parallel_size"));
  }
}

}  // namespace tessera
