#include <tessera/options.hpp>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/config/config_file.hpp"

namespace tessera {

namespace {

using testing::load_error;
using testing::load_text;

std::string read(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string example(const std::string& name) {
  return read(std::string(TESSERA_SOURCE_DIR) + "/examples/configs/" + name);
}

}  // namespace

TEST_CASE("the documented example loads with its values") {
  const Config config = load_text(example("moe_tiny.yaml"));
  CHECK(config.run.name == "moe-tiny");
  CHECK(config.run.dir == "runs/moe-tiny");
  CHECK(config.model.num_kv_heads == 4);
  CHECK(config.model.vocab_size == 0);
  CHECK(config.model.norm_eps == 1e-5);
  CHECK(config.model.tokenizer.path.empty());
  REQUIRE(config.moe.has_value());
  CHECK(config.moe->capacity_factor == 1.25);
  CHECK(config.trainer.micro_batch_size == 8);
  CHECK(config.trainer.train_batch_size == 0);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.data.train == std::vector<std::string>{"data/jargon.txt"});
  CHECK(config.data.eval.empty());
  CHECK(config.checkpoint.dir.empty());
  CHECK(config.zero.persistence_threshold == 1000);
  CHECK(config.debug.inject.empty());
  CHECK(config.warnings.empty());
}

TEST_CASE("fragments that training teams write work as they are") {
  Config config = load_text(
      "trainer: {backend: deepspeed, zero_stage: 3, gradient_accumulation_steps: 4}\n"
      "checkpoint: {save_interval: 500, keep_last: 3}\n"
      "moe: {expert_parallel_size: 2, capacity_factor: 1.2, drop_tokens: false}\n"
      "activation_checkpointing: {partition_activations: true}\n");
  CHECK(config.trainer.backend == "deepspeed");
  CHECK(config.trainer.zero_stage == 3);
  CHECK(config.trainer.activation_checkpointing == "block");
  CHECK(config.checkpoint.save_interval == 500);
  REQUIRE(config.moe.has_value());
  CHECK(config.moe->num_experts == 8);
  CHECK_FALSE(config.moe->drop_tokens);
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0].find("tensor parallelism") != std::string::npos);
  resolve_for_ranks(config, 2);
  CHECK(config.trainer.train_batch_size == 8);
}

TEST_CASE("absent keys have the defaults of the structs") {
  const Config loaded = load_text("{}");
  Config made;
  made.run.dir = "runs/run";
  made.model.num_kv_heads = 4;
  made.model.intermediate_size = 344;
  CHECK(loaded.resolved_yaml == config_to_yaml(made));
  CHECK_FALSE(loaded.moe.has_value());
  CHECK(loaded.origins.empty());
}

TEST_CASE("sizes that follow from others") {
  CHECK(load_text("model: {hidden_size: 4096, num_heads: 32}").model.intermediate_size == 10928);
  CHECK(load_text("model: {family: gpt2, hidden_size: 64}").model.intermediate_size == 256);
  CHECK(load_text("model: {num_heads: 8}").model.num_kv_heads == 8);
  CHECK(load_text("run: {name: x}").run.dir == "runs/x");
  CHECK(load_text("model: {family: mixtral}").moe.has_value());
  CHECK(load_text("moe: {}").moe.has_value());
}

TEST_CASE("the resolved text loads to the same values") {
  for (const std::string& text :
       {example("moe_tiny.yaml"), example("dense_tiny.yaml"), std::string("{}"),
        std::string("run: {name: \"a: 'b' \\\" # \\\\ \\n\", dir: \"auto\"}\n"
                    "data: {train: [\"*.txt\", \"5\", \"ü\", \"- x\"], eval: ['~', 'true']}\n"
                    "optimizer: {lr: 0.1234567890123456789, eps: 5e-300}\n"
                    "activation_checkpointing: {partition_activations: true}\n"
                    "debug:\n  inject:\n  - {step: 3, rank: 1, action: kill}\n"
                    "  - {step: 4, action: stall}\n")}) {
    const Config first = load_text(text);
    INFO(first.resolved_yaml);
    const Config second = load_text(first.resolved_yaml);
    CHECK(second.resolved_yaml == first.resolved_yaml);
    CHECK(second.run.name == first.run.name);
    CHECK(second.run.dir == first.run.dir);
    CHECK(second.data.train == first.data.train);
    CHECK(second.data.eval == first.data.eval);
    CHECK(second.optimizer.lr == first.optimizer.lr);
    CHECK(second.optimizer.eps == first.optimizer.eps);
    CHECK(second.debug.inject.size() == first.debug.inject.size());
    Config ranked = first;
    resolve_for_ranks(ranked, 2 * (first.debug.inject.empty() ? 1 : 2));
    CHECK(load_text(ranked.resolved_yaml).resolved_yaml == ranked.resolved_yaml);
  }
}

TEST_CASE("a quoted 'auto' is a name") {
  CHECK(load_text("run: {dir: \"auto\"}").run.dir == "auto");
  CHECK(load_text("run: {dir: auto}").run.dir == "runs/run");
}

TEST_CASE("--set goes through the same checks and takes precedence") {
  const std::string text = "trainer: {zero_stage: 2, max_steps: 7}\noptimizer:\n  lr: 1e-3\n";
  const Config config =
      load_text(text, {"trainer.zero_stage=1", "optimizer.betas=[0.8, 0.9]", "moe={num_experts: 4}",
                       "moe.top_k=1", "optimizer.lr=2E-3", "run.name=123", "data.train=[a b.txt]"});
  CHECK(config.trainer.zero_stage == 1);
  CHECK(config.trainer.max_steps == 7);
  CHECK(config.optimizer.beta1 == 0.8);
  CHECK(config.optimizer.lr == 2e-3);
  CHECK(config.moe->num_experts == 4);
  CHECK(config.moe->top_k == 1);
  CHECK(config.run.name == "123");
  CHECK(config.data.train == std::vector<std::string>{"a b.txt"});
  CHECK(config.origins.at("trainer.zero_stage") == "--set trainer.zero_stage=1");

  CHECK(load_error(text, {"trainer.zero_stage=9"}) ==
        "an integer from 0 to 3 is expected, not 9 "
        "[--set trainer.zero_stage=9: trainer.zero_stage]");
  const auto refused = [&](const std::string& override_text, const std::string& part) {
    const std::string error = load_error(text, {override_text});
    INFO(override_text << " -> " << error);
    CHECK(error.find(part) != std::string::npos);
    CHECK(error.find("--set " + override_text) != std::string::npos);
  };
  refused("trainer.zero_stge=1", "did you mean 'trainer.zero_stage'");
  refused("trainer.max_steps='5'", "quoted");
  refused("trainer.max_steps=", "no value");
  refused("trainer.max_steps=~", "null");
  refused("trainer.max_steps", "key.path=value");
  refused("=5", "key.path=value");
  refused("trainer..max_steps=5", "key.path=value");
  refused("trainer.max_steps=[1", "YAML syntax");
  refused("moe={num_experts: 4, num_experts: 5}", "given twice");
  refused("trainer=5", "map of keys");
  CHECK(load_error(text, {"trainer.max_steps.x=1"}) ==
        "a map of keys is expected, not the text '7' [c.yaml:1: trainer.max_steps]");
  CHECK(load_error("trainer: 5", {"trainer={zero_stage: 1}"}).find("[c.yaml:1: trainer]") !=
        std::string::npos);
  CHECK(load_error(text, {"trainer.max_steps=1", "trainer.max_steps=2"}).find("set twice") !=
        std::string::npos);
}

TEST_CASE("every value knows where it comes from") {
  Config config = load_text("trainer:\n  max_steps: 5\n", {"run.seed=1"});
  std::map<std::string, ConfigValue> values;
  for (const ConfigValue& value : config_values(config)) values[value.key] = value;
  CHECK(values.at("trainer.max_steps").value == "5");
  CHECK(values.at("trainer.max_steps").origin.find("c.yaml:2") != std::string::npos);
  CHECK(values.at("run.seed").origin == "--set run.seed=1");
  CHECK(values.at("trainer.zero_stage").origin == "default");
  CHECK(values.at("trainer.train_batch_size").value == "auto");
}

TEST_CASE("warnings for what is allowed but odd") {
  CHECK(load_text("checkpoint: {keep_last: 1}").warnings.size() == 1);
  CHECK(load_text("checkpoint: {keep_last: 0}").warnings.empty());
  CHECK(load_text("moe: {drop_policy: probs}").warnings.size() == 1);
  CHECK(load_text("moe: {drop_policy: probs, top_k: 3}").warnings.empty());
  CHECK(load_text("optimizer: {momentum: 0.9}").warnings.size() == 1);
  CHECK(load_text("optimizer: {type: sgd, momentum: 0.9}").warnings.empty());
}

TEST_CASE("files that cannot be read are data errors") {
  const testing::TemporaryDirectory directory;
  for (const std::string& path : {directory / "missing.yaml", directory.path()}) {
    try {
      load_config(path);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kData);
      CHECK(std::string(error.what()).find(path) != std::string::npos);
    }
  }
}

TEST_CASE("any beginning of a file, and any file with a byte changed, loads or raises Error") {
  const std::string text = example("moe_tiny.yaml");
  const auto attempt = [](const std::string& input) {
    try {
      load_text(input);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUsage);
      CHECK_FALSE(error.message().empty());
      CHECK(error.message().find('\n') == std::string::npos);
    }
  };
  for (std::size_t end = 0; end < text.size(); end += 7) attempt(text.substr(0, end));
  const std::string bytes("\0\t\n:{}[]&*#'\"-?!|>%@`\xff~,5e.", 28);
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::string changed = text;
    changed[i] = bytes[(i / 3) % bytes.size()];
    attempt(changed);
  }
}

}  // namespace tessera
