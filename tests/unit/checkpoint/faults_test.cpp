// Disks that are full or broken, ranks that fail, and a process that dies in the middle.
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

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

const std::vector<TensorSpec> kSpecs = {{"a", {1000}}, {"b", {300, 3}}, {"c", {}}};
constexpr int kRanks = 3;

CheckpointOptions keep(std::int64_t count) {
  CheckpointOptions options;
  options.keep_last = count;
  return options;
}

std::string save(Env& env, const std::string& directory, std::int64_t step, std::uint64_t salt,
                 int ranks = kRanks, std::int64_t keep_last = 0) {
  return common_error(ranks, [&](World& world) {
    TestSource source(world, kSpecs, salt);
    Checkpointer(keep(keep_last), directory, world, {}, env).save(step, {&source}, test_versions());
  });
}

// The step and what is wrong with the values, which are of generation salt(step).
std::string load_newest(const std::string& directory,
                        const std::function<std::uint64_t(std::int64_t)>& salt,
                        std::int64_t* step = nullptr) {
  std::string problem;
  const std::string error = common_error(1, [&](World& world) {
    TestSource source(world, kSpecs, 0);
    const auto loaded =
        Checkpointer(keep(0), directory, world).load_latest({&source}, test_versions());
    if (step != nullptr) *step = loaded.value_or(-1);
    problem = loaded ? source.problem(salt(*loaded)) : "nothing";
  });
  return error + problem;
}

std::uint64_t same_as_step(std::int64_t step) { return static_cast<std::uint64_t>(step); }

TEST_CASE("A failure of any rank's file is an error on all ranks and leaves the old ones") {
  struct Case {
    FileOperation operation;
    const char* path;
    int error;
    const char* reason;
  };
  std::vector<Case> cases = {
      {FileOperation::kMake, "step-00000002", EACCES, "Permission denied"},
      {FileOperation::kOpen, "manifest.json", EROFS, "Read-only"},
      {FileOperation::kWrite, "manifest.json", ENOSPC, "No space left"},
      {FileOperation::kSync, "manifest.json", EIO, "Input/output"},
      {FileOperation::kClose, "manifest.json", EDQUOT, "quota"},
      {FileOperation::kRename, "manifest.json", EIO, "Input/output"},
      {FileOperation::kSyncDirectory, "step-00000002", EIO, "Input/output"},
  };
  for (const char* shard : {"shard-00000", "shard-00001", "shard-00002"}) {
    cases.push_back({FileOperation::kOpen, shard, EACCES, "Permission denied"});
    cases.push_back({FileOperation::kWrite, shard, ENOSPC, "No space left"});
    cases.push_back({FileOperation::kSync, shard, EIO, "Input/output"});
    cases.push_back({FileOperation::kClose, shard, EDQUOT, "quota"});
  }
  const TemporaryDirectory directory;
  FaultyEnv env(Env::posix());
  REQUIRE(save(env, directory.path(), 1, 1) == "");
  for (const Case& fault : cases) {
    env.clear();
    env.fail_nth(fault.operation, 0, fault.error, fault.path, 1000);
    INFO(fault.path << " " << static_cast<int>(fault.operation));
    const std::string error = save(env, directory.path(), 2, 2, kRanks, 1);
    CHECK_THAT(error, Contains("data: the checkpoint of step 2 could not be saved: ") &&
                          Contains(fault.reason));
    if (std::string(fault.path) == "shard-00002") CHECK_THAT(error, Contains("rank 2"));
    CHECK(Env::posix().list_directory(directory.path()) ==
          std::vector<std::string>{"latest", "step-00000001"});
    CHECK(load_newest(directory.path(), same_as_step) == "");
  }
  env.clear();
  CHECK(save(env, directory.path(), 2, 2) == "");
  CHECK(load_newest(directory.path(), same_as_step) == "");
}

TEST_CASE("When not even the leftovers can be removed the next save replaces them") {
  const TemporaryDirectory directory;
  FaultyEnv env(Env::posix());
  env.fail_nth(FileOperation::kWrite, 0, ENOSPC, "shard-00001", 100);
  env.fail_nth(FileOperation::kRemove, 0, EIO, {}, 0, true);
  CHECK_THAT(save(env, directory.path(), 2, 2), Contains("No space left"));
  CHECK(Env::posix().exists(directory / "step-00000002/shard-00001-of-00003.tsr"));
  CHECK(load_newest(directory.path(), same_as_step) == "nothing");
  env.clear();
  CHECK(save(env, directory.path(), 2, 2) == "");
  CHECK(load_newest(directory.path(), same_as_step) == "");
}

TEST_CASE("Failures after a checkpoint is complete only warn") {
  const TemporaryDirectory directory;
  FaultyEnv env(Env::posix());
  REQUIRE(save(env, directory.path(), 1, 1) == "");
  env.fail_nth(FileOperation::kRename, 0, EIO, "latest");
  env.fail_nth(FileOperation::kRemove, 0, EIO, {}, 0, true);
  const auto logger = std::make_shared<MemoryLogger>();
  const std::string error = common_error(
      2,
      [&](World& world) {
        TestSource source(world, kSpecs, 2);
        Checkpointer checkpointer(keep(1), directory.path(), world, {}, env);
        checkpointer.load_latest({&source}, test_versions());
        checkpointer.save(2, {&source}, test_versions());
      },
      logger);
  CHECK(error == "");
  CHECK_THAT(logger->text(), Contains("latest") && Contains("step-00000001"));
  CHECK(list_checkpoints(directory.path()).size() == 2);
}

TEST_CASE("Too little space is found before anything is written") {
  const TemporaryDirectory directory;
  FaultyEnv env(Env::posix());
  env.set_free_bytes(2000);
  CHECK_THAT(save(env, directory.path(), 1, 1),
             Contains("2000 bytes free") && Contains("state has 7604"));
  for (const auto& record : env.records()) {
    CHECK(record.operation != FileOperation::kWrite);
  }
}

TEST_CASE("A directory that cannot be written is found at the start") {
  const TemporaryDirectory directory;
  const auto check = [&](Env& env, const std::string& path) {
    return common_error(kRanks, [&](World& world) {
      Checkpointer(keep(0), path, world, {}, env).check_writable();
    });
  };
  FaultyEnv env(Env::posix());
  CHECK(check(env, directory / "new/deep") == "");
  CHECK(Env::posix().list_directory(directory / "new/deep").empty());
  env.fail_nth(FileOperation::kOpen, 0, EROFS, ".probe-1");
  CHECK_THAT(check(env, directory / "new"),
             Contains("data: ") && Contains("Read-only") && Contains("rank 1"));
  std::ofstream(directory / "file") << "x";
  CHECK_THAT(check(env, directory / "file"), Contains("data: ") && Contains("file"));
}

TEST_CASE("A slow rank delays publication, it is not left out") {
  const TemporaryDirectory directory;
  bool manifest_too_early = false;
  const std::string error = common_error(2, [&](World& world) {
    FaultyEnv env(Env::posix());
    env.set_observer([&](const testing::FileRecord& record) {
      if (world.rank() != 1 || record.operation != FileOperation::kSync) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      manifest_too_early = Env::posix().exists(directory / "step-00000001/manifest.json");
    });
    TestSource source(world, kSpecs, 1);
    Checkpointer(keep(0), directory.path(), world, {}, env).save(1, {&source}, test_versions());
  });
  CHECK(error == "");
  CHECK_FALSE(manifest_too_early);
  CHECK(load_newest(directory.path(), same_as_step) == "");
}

TEST_CASE("A process that dies at any operation leaves the old or the new checkpoint") {
  // Step 1 exists; step 2 is saved with keep_last 1.
  int deaths = 0;
  bool seen[3] = {false, false, false};
  for (bool finished = false; !finished; ++deaths) {
    const TemporaryDirectory directory;
    FaultyEnv env(Env::posix());
    REQUIRE(save(env, directory.path(), 1, 1, 1) == "");
    env.fail_all_from(deaths);
    finished = common_error(1,
                            [&](World& world) {
                              TestSource source(world, kSpecs, 2);
                              Checkpointer checkpointer(keep(1), directory.path(), world, {}, env);
                              checkpointer.load_latest({&source}, test_versions());
                              TestSource changed(world, kSpecs, 2);
                              checkpointer.save(2, {&changed}, test_versions());
                            }) == "" &&
               Env::posix().list_directory(directory.path()).size() == 2;
    std::int64_t step = -1;
    CHECK(load_newest(directory.path(), same_as_step, &step) == "");
    REQUIRE((step == 1 || step == 2));
    seen[step] = true;
    CHECK(save(Env::posix(), directory.path(), 3, 3, 2) == "");  // and the next save works
    CHECK(load_newest(directory.path(), same_as_step) == "");
    REQUIRE(deaths < 100);
  }
  CHECK(deaths > 15);
  CHECK(seen[1]);
  CHECK(seen[2]);
}

TEST_CASE("A process that dies while it saves a step again leaves that step") {
  int deaths = 0;
  for (bool finished = false; !finished; ++deaths) {
    const TemporaryDirectory directory;
    FaultyEnv env(Env::posix());
    REQUIRE(save(env, directory.path(), 1, 10, 1) == "");
    env.fail_all_from(deaths);
    save(env, directory.path(), 1, 20, 1);
    env.clear();
    finished =
        Env::posix().list_directory(directory.path()).size() == 2 &&
        read_manifest(Env::posix(), directory / "step-00000001").common.at("test.salt") == "20";
    // Either generation, whole.
    const std::string old_problem = load_newest(directory.path(), [](auto) { return 10u; });
    const std::string new_problem = load_newest(directory.path(), [](auto) { return 20u; });
    CHECK((old_problem == "" || new_problem == ""));
    CHECK(save(env, directory.path(), 1, 30, 1) == "");
    CHECK(load_newest(directory.path(), [](auto) { return 30u; }) == "");
    CHECK(Env::posix().list_directory(directory.path()) ==
          std::vector<std::string>{"latest", "step-00000001"});
    REQUIRE(deaths < 100);
  }
  CHECK(deaths > 15);
}

}  // namespace
}  // namespace tessera
