// Which checkpoint is the newest, and which ones go.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "checkpoint/catalog.hpp"
#include "checkpoint_fixture.hpp"
#include "support/faulty_env.hpp"
#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using Catch::Contains;
using testing::common_error;
using testing::FaultyEnv;
using testing::FileOperation;
using testing::MemoryLogger;
using testing::TemporaryDirectory;
using testing::TensorSpec;
using testing::test_versions;
using testing::TestSource;

const std::vector<TensorSpec> kSpecs = {{"t", {100}}};

CheckpointOptions keep(std::int64_t count) {
  CheckpointOptions options;
  options.keep_last = count;
  return options;
}

// Saves the steps one after the other in one run.
std::string save_steps(const std::string& directory, std::vector<std::int64_t> steps,
                       std::int64_t keep_last, bool resume = false, int ranks = 2) {
  return common_error(ranks, [&](World& world) {
    TestSource source(world, kSpecs, 1);
    Checkpointer checkpointer(keep(keep_last), directory, world);
    if (resume) checkpointer.load_latest({&source}, test_versions());
    for (const std::int64_t step : steps) checkpointer.save(step, {&source}, test_versions());
  });
}

std::vector<std::int64_t> steps_in(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(directory)) {
    if (info.valid) steps.push_back(info.step);
  }
  return steps;
}

std::int64_t newest_loaded(const std::string& directory, std::shared_ptr<Logger> logger = nullptr) {
  std::int64_t step = -1;
  const std::string error = common_error(
      1,
      [&](World& world) {
        TestSource source(world, kSpecs, 0);
        step = Checkpointer(keep(0), directory, world)
                   .load_latest({&source}, test_versions())
                   .value_or(-1);
      },
      std::move(logger));
  CHECK(error == "");
  return step;
}

using Steps = std::vector<std::int64_t>;

TEST_CASE("Steps compare as numbers") {
  const TemporaryDirectory directory;
  REQUIRE(save_steps(directory.path(), {9, 10, 900, 1000, 1100}, 2) == "");
  CHECK(steps_in(directory.path()) == Steps{1000, 1100});
  CHECK(newest_loaded(directory.path()) == 1100);
  CHECK(Env::posix().read_file(directory / "latest") == "step-00001100\n");

  // Names with other numbers of leading zeros, or none.
  namespace fs = std::filesystem;
  fs::rename(directory / "step-00001000", directory / "step-1000");
  fs::rename(directory / "step-00001100", directory / "step-0000000001100");
  fs::create_directories(directory / "step-x");
  fs::create_directories(directory / "step-");
  fs::create_directories(directory / "step-99999999999999999999999");
  fs::create_directories(directory / "step-12backup");
  std::ofstream(directory / "step-5000") << "a file";
  CHECK(steps_in(directory.path()) == Steps{1000, 1100});
  CHECK(newest_loaded(directory.path()) == 1100);
  REQUIRE(save_steps(directory.path(), {100000000}, 2, true) == "");
  CHECK(steps_in(directory.path()) == Steps{1100, 100000000});
  CHECK(newest_loaded(directory.path()) == 100000000);
}

TEST_CASE("keep_last keeps that many, and zero keeps all") {
  const TemporaryDirectory directory;
  REQUIRE(save_steps(directory / "one", {1, 2, 3}, 1) == "");
  CHECK(steps_in(directory / "one") == Steps{3});
  REQUIRE(save_steps(directory / "three", {1, 2, 3, 4, 5}, 3) == "");
  CHECK(steps_in(directory / "three") == Steps{3, 4, 5});
  REQUIRE(save_steps(directory / "all", {1, 2, 3, 4, 5}, 0) == "");
  CHECK(steps_in(directory / "all") == Steps{1, 2, 3, 4, 5});
  CHECK_THAT(save_steps(directory / "negative", {1}, -1),
             Contains("usage: ") && Contains("keep_last"));
}

TEST_CASE("Only this run's older checkpoints are dropped") {
  const TemporaryDirectory directory;
  REQUIRE(save_steps(directory.path(), {1000}, 1) == "");
  // A new run that does not continue the old one.
  REQUIRE(save_steps(directory.path(), {10, 20, 30}, 1) == "");
  CHECK(steps_in(directory.path()) == Steps{30, 1000});
  // A run that continues the newest drops what is its own.
  REQUIRE(save_steps(directory.path(), {1010, 1020}, 1, true) == "");
  CHECK(steps_in(directory.path()) == Steps{30, 1020});
}

TEST_CASE("A run that was set back does not drop what it saves") {
  const TemporaryDirectory directory;
  REQUIRE(save_steps(directory.path(), {100, 200, 300, 400}, 0) == "");
  const std::string error = common_error(2, [&](World& world) {
    TestSource source(world, kSpecs, 0);
    Checkpointer checkpointer(keep(2), directory.path(), world);
    checkpointer.load(directory / "step-00000200", {&source}, test_versions());
    checkpointer.save(250, {&source}, test_versions());
  });
  CHECK(error == "");
  CHECK(steps_in(directory.path()) == Steps{200, 250, 300, 400});
}

TEST_CASE("Incomplete and damaged checkpoints do not count") {
  const TemporaryDirectory directory;
  REQUIRE(save_steps(directory.path(), {1, 2, 3}, 0) == "");
  std::filesystem::remove(directory / "step-00000003/manifest.json");
  std::filesystem::resize_file(directory / "step-00000002/shard-00001-of-00002.tsr", 5000);
  const auto logger = std::make_shared<MemoryLogger>();
  CHECK(newest_loaded(directory.path(), logger) == 1);
  CHECK_THAT(logger->text(), Contains("step-00000003' has no manifest.json") &&
                                 Contains("step-00000002/shard-00001-of-00002.tsr': it has 5000"));
  // Two are to be kept: the sound old one stays, the broken ones are left alone.
  REQUIRE(save_steps(directory.path(), {4}, 2, true) == "");
  CHECK(steps_in(directory.path()) == Steps{1, 4});
  CHECK(list_checkpoints(directory.path()).size() == 4);
}

TEST_CASE("Where all checkpoints are damaged a run does not start from scratch") {
  const TemporaryDirectory directory;
  const auto load = [&] {
    return common_error(2, [&](World& world) {
      TestSource source(world, kSpecs, 0);
      Checkpointer(keep(0), directory.path(), world).load_latest({&source}, test_versions());
    });
  };
  CHECK(load() == "");  // none at all
  std::filesystem::create_directories(directory / "step-00000007");
  CHECK(load() == "");  // a first save that did not end
  REQUIRE(save_steps(directory.path(), {8}, 0) == "");
  std::ofstream(directory / "step-00000008/manifest.json") << "{}";
  CHECK_THAT(load(), Contains("checkpoint: none of the checkpoints in"));
}

TEST_CASE("Leftovers of a save that did not end are replaced") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "step-00000005/folder");
  std::ofstream(directory / "step-00000005/shard-00000-of-00002.tsr") << "junk";
  std::ofstream(directory / "step-00000005/shard-00001-of-00002.tsr") << "junk";
  REQUIRE(save_steps(directory.path(), {5}, 0) == "");
  CHECK(steps_in(directory.path()) == Steps{5});
  CHECK(Env::posix().list_directory(directory / "step-00000005").size() == 3);
  CHECK(verify_checkpoint(directory / "step-00000005") > 0);
}

TEST_CASE("A step is saved again without a moment in which it is missing") {
  const TemporaryDirectory directory;
  REQUIRE(save_steps(directory.path(), {5}, 0) == "");
  const Manifest before = read_manifest(Env::posix(), directory / "step-00000005");
  FaultyEnv env(Env::posix());
  bool always_there = true;
  env.set_observer([&](const testing::FileRecord&) {
    bool found = false;
    for (const CheckpointInfo& info : list_checkpoints(directory.path())) found |= info.valid;
    always_there = always_there && found;
  });
  REQUIRE(
      common_error(1, [&](World& world) {
        TestSource source(world, kSpecs, 2);
        Checkpointer(keep(1), directory.path(), world, {}, env).save(5, {&source}, test_versions());
      }) == "");
  CHECK(always_there);
  CHECK(Env::posix().list_directory(directory.path()) ==
        std::vector<std::string>{"latest", "step-00000005"});
  CHECK_FALSE(read_manifest(Env::posix(), directory / "step-00000005").save_id == before.save_id);
}

TEST_CASE("An old checkpoint goes only after the new one is complete, its manifest first") {
  const TemporaryDirectory directory;
  FaultyEnv env(Env::posix());
  REQUIRE(common_error(1, [&](World& world) {
            TestSource source(world, kSpecs, 1);
            Checkpointer checkpointer(keep(1), directory.path(), world, {}, env);
            checkpointer.save(1, {&source}, test_versions());
            env.clear();
            checkpointer.save(2, {&source}, test_versions());
          }) == "");
  int published = -1;
  std::vector<std::string> removed;
  int place = 0;
  for (const auto& record : env.records()) {
    if (record.operation == FileOperation::kRename &&
        record.target.find("step-00000002/manifest.json") != std::string::npos) {
      published = place;
    }
    if (record.operation == FileOperation::kRemove) {
      CHECK(published >= 0);
      removed.push_back(record.path.substr(directory.path().size()));
    }
    ++place;
  }
  CHECK(removed == std::vector<std::string>{"/step-00000001/manifest.json", "/step-00000001"});
}

}  // namespace
}  // namespace tessera
