#include <tessera/options.hpp>

#include <string>

#include <catch2/catch.hpp>

#include "unit/config/config_file.hpp"

namespace tessera {

namespace {

using testing::load_error;
using testing::load_text;

// "train = micro x accumulation" as resolved, or the error.
std::string resolved(const std::string& trainer, int ranks) {
  const std::string text = "trainer: {" + trainer + "}\n";
  const std::string error = load_error(text, {}, ranks);
  if (!error.empty()) return error;
  Config config = load_text(text);
  resolve_for_ranks(config, ranks);
  const TrainerOptions& t = config.trainer;
  CHECK(t.train_batch_size == t.micro_batch_size * t.gradient_accumulation_steps * ranks);
  return std::to_string(t.train_batch_size) + " = " + std::to_string(t.micro_batch_size) + " x " +
         std::to_string(t.gradient_accumulation_steps);
}

bool names(const std::string& text, std::initializer_list<const char*> parts) {
  INFO(text);
  bool all = true;
  for (const char* part : parts) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
    all = all && text.find(part) != std::string::npos;
  }
  return all;
}

}  // namespace

TEST_CASE("two batch sizes give the third") {
  CHECK(resolved("micro_batch_size: 8, gradient_accumulation_steps: 4", 2) == "64 = 8 x 4");
  CHECK(resolved("micro_batch_size: 8, gradient_accumulation_steps: 4", 3) == "96 = 8 x 4");
  CHECK(resolved("train_batch_size: 64, micro_batch_size: 8", 2) == "64 = 8 x 4");
  CHECK(resolved("train_batch_size: 64, gradient_accumulation_steps: 4", 2) == "64 = 8 x 4");
  CHECK(resolved("train_batch_size: 64, micro_batch_size: 8, gradient_accumulation_steps: 4", 2) ==
        "64 = 8 x 4");
  CHECK(resolved("train_batch_size: auto, micro_batch_size: 8, gradient_accumulation_steps: 4",
                 1) == "32 = 8 x 4");
}

TEST_CASE("free batch sizes are one") {
  CHECK(resolved("train_batch_size: 24", 3) == "24 = 8 x 1");
  CHECK(resolved("micro_batch_size: 5", 2) == "10 = 5 x 1");
  CHECK(resolved("gradient_accumulation_steps: 4", 2) == "8 = 1 x 4");
  CHECK(resolved("max_steps: 1", 4) == "4 = 1 x 1");
}

TEST_CASE("impossible batches name all four numbers and what would do") {
  names(resolved("train_batch_size: 60, micro_batch_size: 8, gradient_accumulation_steps: 4", 2),
        {"60", "micro_batch_size 8", "gradient_accumulation_steps 4", "2 ranks",
         "allowed: train_batch_size 64", "[c.yaml:1: trainer.train_batch_size]"});
  names(resolved("train_batch_size: 64, micro_batch_size: 8, gradient_accumulation_steps: 2", 2),
        {"gradient_accumulation_steps 4", "micro_batch_size 16", "or 4 ranks"});
  names(resolved("train_batch_size: 24, gradient_accumulation_steps: 5", 3),
        {"24", "micro_batch_size auto", "gradient_accumulation_steps 5", "3 ranks",
         "allowed: gradient_accumulation_steps 1, 2, 4, 8", "multiple of 15"});
  names(resolved("train_batch_size: 16, gradient_accumulation_steps: 4", 3),
        {"16", "3 ranks", "multiple of 3, such as 15 or 18", "ranks 1, 2, 4, 8, 16"});
  names(resolved("train_batch_size: 2", 3), {"such as 3 or 6", "ranks 1, 2"});
  names(resolved("micro_batch_size: 1000000000, gradient_accumulation_steps: 1000000000", 2),
        {"too large"});
}

TEST_CASE("expert-parallel sizes divide ranks and experts, or are refused with what is allowed") {
  const auto expert_parallel = [](const std::string& moe, int ranks) {
    const std::string text = "moe: {" + moe + "}\n";
    const std::string error = load_error(text, {}, ranks);
    if (!error.empty()) return error;
    Config config = load_text(text);
    resolve_for_ranks(config, ranks);
    return std::to_string(config.moe->expert_parallel_size);
  };
  CHECK(expert_parallel("num_experts: 8, expert_parallel_size: auto", 4) == "4");
  CHECK(expert_parallel("num_experts: 8, expert_parallel_size: auto", 6) == "2");
  CHECK(expert_parallel("num_experts: 2, expert_parallel_size: auto", 4) == "2");
  CHECK(expert_parallel("num_experts: 8, expert_parallel_size: auto", 3) == "1");
  CHECK(expert_parallel("num_experts: 8, expert_parallel_size: 1", 3) == "1");
  CHECK(expert_parallel("num_experts: 8, expert_parallel_size: 2", 4) == "2");
  names(expert_parallel("num_experts: 8, expert_parallel_size: 3", 4),
        {"expert_parallel_size 3", "num_experts 8", "4 ranks", "allowed: 1, 2, 4",
         "[c.yaml:1: moe.expert_parallel_size]"});
  names(expert_parallel("num_experts: 8, expert_parallel_size: 8", 4), {"allowed: 1, 2, 4"});
  names(expert_parallel("num_experts: 6, expert_parallel_size: 4", 4), {"allowed: 1, 2"});
  names(expert_parallel("num_experts: 8, expert_parallel_size: 2", 3), {"allowed: 1 ["});
}

TEST_CASE("without the number of ranks, only what no number would cure is refused") {
  const auto problem = [](const std::string& text) -> std::string {
    try {
      check_for_any_ranks(load_text(text));
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  CHECK(problem("trainer: {train_batch_size: 64, micro_batch_size: 8}").empty());
  CHECK(problem("moe: {num_experts: 8, expert_parallel_size: 8}").empty());
  names(problem("trainer: {train_batch_size: 60, micro_batch_size: 8}"), {"multiple of 8"});
  names(problem("moe: {num_experts: 8, expert_parallel_size: 3}"), {"1, 2, 4, 8"});
}

TEST_CASE("ranks and faults on them") {
  Config config = load_text("debug: {inject: [{step: 1, rank: 3, action: kill}]}\n");
  CHECK_THROWS_WITH(resolve_for_ranks(config, 0), Catch::Contains("at least 1"));
  CHECK_THROWS_WITH(resolve_for_ranks(config, 3), Catch::Contains("rank 3 does not exist"));
  CHECK_NOTHROW(resolve_for_ranks(config, 4));
}

}  // namespace tessera
