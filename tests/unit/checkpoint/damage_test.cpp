// Damaged files: every byte that matters is found out, and nothing crashes.
#include <filesystem>
#include <fstream>
#include <random>

#include <catch2/catch.hpp>

#include "checkpoint/catalog.hpp"
#include "checkpoint/restore.hpp"
#include "checkpoint_fixture.hpp"
#include "support/overlay_env.hpp"
#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using Catch::Contains;
using testing::common_error;
using testing::MemoryLogger;
using testing::OverlayEnv;
using testing::TemporaryDirectory;
using testing::TensorSpec;
using testing::test_versions;
using testing::TestSource;

const std::vector<TensorSpec> kSpecs = {
    {"a", {3000}}, {"b", {7, 3}, DType::kBF16}, {"c", {}}, {"d", {0, 2}}};
// Of several chunks on each rank.
const std::vector<TensorSpec> kLargeSpecs = {{"a", {700000}}, {"b", {5}}};

CheckpointOptions keep_all() {
  CheckpointOptions options;
  options.keep_last = 0;
  return options;
}

std::string save(const std::string& directory, std::int64_t step, int ranks = 2,
                 const std::vector<TensorSpec>& specs = kSpecs) {
  return common_error(ranks, [&](World& world) {
    TestSource source(world, specs, static_cast<std::uint64_t>(step));
    Checkpointer(keep_all(), directory, world, "config: text\n")
        .save(step, {&source}, test_versions());
  });
}

// A saved checkpoint whose files can be damaged in memory, and what a reader then gets.
class Patient {
 public:
  explicit Patient(const std::vector<TensorSpec>& specs = kSpecs)
      : env_(Env::posix()), world_(World::single()), source_(*world_, specs, 0) {
    error_ = save(directory_.path(), 1, 2, specs);
    path_ = directory_ / "step-00000001";
    for (const std::string& name : Env::posix().list_directory(path_)) {
      files_[name] = Env::posix().read_file(path_ + "/" + name);
    }
  }

  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  const std::string& content(const std::string& name) const { return files_.at(name); }
  std::vector<std::string> shards() const { return {shard_file_name(0, 2), shard_file_name(1, 2)}; }

  void replace(const std::string& name, std::string content) {
    env_.replace(path_ + "/" + name, std::move(content));
  }
  void heal() {
    for (const auto& [name, content] : files_) env_.restore(path_ + "/" + name);
  }

  // "", "wrong values" or the error of loading; anything but a checkpoint error propagates.
  std::string load() {
    return outcome([&] {
      const Manifest manifest = inspect_checkpoint(env_, path_);
      const auto wanted = source_.state_to_load();
      check_wanted(manifest, wanted);
      restore_slices(env_, path_, manifest, wanted);
      source_.load_common(manifest.common);
    });
  }
  std::string values() { return source_.problem(1); }
  std::string verify() {
    return outcome([&] { verify_checkpoint(env_, path_); });
  }

 private:
  static std::string outcome(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) return "another error: " + error.message();
      return "found: " + error.message();
    }
    return {};
  }

  TemporaryDirectory directory_;
  std::string error_;
  std::string path_;
  std::map<std::string, std::string> files_;
  OverlayEnv env_;
  std::unique_ptr<World> world_;
  TestSource source_;
};

bool found(const std::string& outcome) { return outcome.starts_with("found: "); }

TEST_CASE("Every flipped byte of the manifest is found") {
  Patient patient;
  REQUIRE(patient.error() == "");
  REQUIRE(patient.load() == "");
  REQUIRE(patient.verify() == "");
  const std::string good = patient.content("manifest.json");
  std::size_t missed = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x20, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      patient.replace("manifest.json", bad);
      if (!found(patient.load())) ++missed;
    }
  }
  CHECK(missed == 0);
  for (std::size_t length = 0; length < good.size(); ++length) {
    patient.replace("manifest.json", good.substr(0, length));
    if (!found(patient.load())) ++missed;
  }
  patient.replace("manifest.json", good + " ");
  CHECK(found(patient.load()));
  CHECK(missed == 0);
}

TEST_CASE("Every flipped byte of a shard is found by verify, and never loads wrong values") {
  Patient patient;
  REQUIRE(patient.error() == "");
  std::size_t unseen = 0;
  std::size_t harmful = 0;
  std::size_t loaded = 0;
  for (const std::string& name : patient.shards()) {
    const std::string good = patient.content(name);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < good.size(); ++i) {
      // Of the zeros that fill the header's page, and of the chunks, a sample.
      const bool sampled = i >= 64 && i + 1000 < good.size();
      if (sampled && i % 17 != 0) continue;
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (random() % 8)));
      patient.replace(name, bad);
      if (!found(patient.verify())) ++unseen;
      const std::string outcome = patient.load();
      if (outcome.empty()) ++loaded;
      if (!found(outcome) && !(outcome.empty() && patient.values().empty())) ++harmful;
    }
    patient.heal();
  }
  CHECK(unseen == 0);
  CHECK(harmful == 0);
  CHECK(loaded > 0);  // padding
}

TEST_CASE("A flipped bit in any chunk is found") {
  Patient patient(kLargeSpecs);
  for (const std::string& name : patient.shards()) {
    const Manifest manifest = read_manifest(Env::posix(), patient.path());
    const std::uint32_t number = name == shard_file_name(0, 2) ? 0 : 1;
    const ShardReader reader(Env::posix(), patient.path() + "/" + name,
                             identity_of(manifest, number));
    REQUIRE_FALSE(reader.index().chunks.empty());
    for (const ChunkEntry& chunk : reader.index().chunks) {
      std::string bad = patient.content(name);
      bad[chunk.offset + chunk.stored_bytes / 2] ^= 0x10;
      patient.replace(name, bad);
      CHECK_THAT(patient.load(), Contains("found: ") && Contains(name) && Contains("chunk"));
    }
    patient.heal();
  }
}

TEST_CASE("Shards that are cut, extended, missing, swapped or of another save are found") {
  Patient patient;
  REQUIRE(patient.error() == "");
  const auto names = patient.shards();
  std::size_t missed = 0;
  for (const std::string& name : names) {
    const std::string good = patient.content(name);
    for (std::size_t length = 0; length < good.size(); length += 509) {
      patient.replace(name, good.substr(0, length));
      if (!found(patient.load()) || !found(patient.verify())) ++missed;
    }
    patient.replace(name, good + std::string(1, '\0'));
    if (!found(patient.load())) ++missed;
    patient.heal();
  }
  CHECK(missed == 0);

  patient.replace(names[0], patient.content(names[1]));
  CHECK(found(patient.load()));
  patient.replace(names[1], patient.content(names[0]));
  CHECK(found(patient.load()));
  patient.heal();

  // The same state saved once more has the same sizes, and another save id.
  const TemporaryDirectory other;
  REQUIRE(save(other.path(), 1) == "");
  const std::string foreign = Env::posix().read_file(other / ("step-00000001/" + names[1]));
  REQUIRE(foreign.size() == patient.content(names[1]).size());
  patient.replace(names[1], foreign);
  CHECK_THAT(patient.load(), Contains("another save"));
  patient.heal();
  patient.replace("manifest.json", Env::posix().read_file(other / "step-00000001/manifest.json"));
  CHECK_THAT(patient.load(), Contains("another save"));
  patient.heal();
  CHECK(patient.load() == "");

  std::filesystem::remove(patient.path() + "/" + names[1]);
  CHECK_THAT(patient.load(), Contains("found: ") && Contains(names[1]));
}

TEST_CASE("All ranks go to the previous checkpoint when one rank meets a damaged chunk") {
  const TemporaryDirectory directory;
  REQUIRE(save(directory.path(), 1, 4) == "");
  REQUIRE(save(directory.path(), 2, 4) == "");
  const std::string shard = directory / "step-00000002/shard-00003-of-00004.tsr";
  std::string content = Env::posix().read_file(shard);
  content[5000] ^= 1;
  std::ofstream(shard, std::ios::binary) << content;

  const auto logger = std::make_shared<MemoryLogger>();
  std::vector<std::string> problems(4);
  std::vector<std::int64_t> steps(4);
  const auto load = [&](bool latest) {
    return common_error(
        4,
        [&](World& world) {
          TestSource source(world, kSpecs, 0);
          Checkpointer checkpointer(keep_all(), directory.path(), world);
          const auto rank = static_cast<std::size_t>(world.rank());
          steps[rank] = latest ? *checkpointer.load_latest({&source}, test_versions())
                               : checkpointer.load(directory.path(), {&source}, test_versions());
          problems[rank] = source.problem(1);
        },
        logger);
  };
  CHECK(load(true) == "");
  CHECK(problems == std::vector<std::string>(4));
  CHECK(steps == std::vector<std::int64_t>(4, 1));
  CHECK_THAT(logger->text(), Contains("passed over a damaged checkpoint") &&
                                 Contains("shard-00003-of-00004.tsr") && Contains("rank 3"));
  // Named, it is not replaced by another.
  CHECK_THAT(load(false), Contains("checkpoint: ") && Contains("shard-00003-of-00004.tsr"));
  CHECK(list_checkpoints(directory.path()).back().valid);  // sizes and ends are right
  CHECK_THROWS_WITH(verify_checkpoint(directory / "step-00000002"), Contains("chunk 0"));

  std::filesystem::remove_all(directory / "step-00000001");
  CHECK_THAT(load(true), Contains("none of the checkpoints"));
}

}  // namespace
}  // namespace tessera
