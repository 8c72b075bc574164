// Saving on some ranks, loading on others.
#include <algorithm>
#include <array>
#include <cstdlib>
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
using testing::MemoryLogger;
using testing::TemporaryDirectory;
using testing::TensorSpec;
using testing::test_versions;
using testing::TestSource;

// Odd sizes, several chunks, one huge and many tiny tensors, no elements, scalars, all types.
std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> list = {
      {"param/embed.weight", {50257, 13}, DType::kF32},
      {"param/norm.weight", {17}, DType::kBF16},
      {"param/half", {3, 5, 7}, DType::kF16},
      {"param/empty", {0, 4}, DType::kF32},
      {"param/scalar", {}, DType::kF32},
      {"adam.m/double", {1000}, DType::kF64},
      {"counts", {19}, DType::kI64},
      {"small.ints", {1}, DType::kI8},
  };
  for (int i = 0; i < 50; ++i) list.push_back({"tiny." + std::to_string(i), {i % 5 + 1}});
  return list;
}

CheckpointOptions keep_all() {
  CheckpointOptions options;
  options.keep_last = 0;
  return options;
}

std::string save(const std::string& directory, int ranks, std::int64_t step, std::uint64_t salt) {
  return common_error(ranks, [&](World& world) {
    TestSource source(world, specs(), salt);
    Checkpointer(keep_all(), directory, world).save(step, {&source}, test_versions());
  });
}

struct Loaded {
  std::string error;
  std::string problem;
  std::int64_t step = -1;
};

Loaded load_with(int ranks, const std::function<std::int64_t(World&, TestSource&)>& load,
                 std::uint64_t salt, const std::function<void(TestSource&)>& adjust = {}) {
  Loaded result;
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> steps(static_cast<std::size_t>(ranks), -1);
  result.error = common_error(ranks, [&](World& world) {
    TestSource source(world, specs(), 999);
    if (adjust) adjust(source);
    const auto rank = static_cast<std::size_t>(world.rank());
    steps[rank] = load(world, source);
    problems[rank] = source.problem(salt);
    if (source.loaded != 1) problems[rank] = "state_loaded() not called once";
  });
  for (const std::string& problem : problems) result.problem += problem;
  result.step = steps[0];
  for (const std::int64_t step : steps) {
    if (step != steps[0]) result.problem += "steps differ";
  }
  return result;
}

TEST_CASE("A checkpoint of any number of ranks loads on any other") {
  const TemporaryDirectory directory;
  for (const int savers : {1, 4}) {
    const std::string path = directory / std::to_string(savers);
    REQUIRE(save(path, savers, 500, 7) == "");
    for (const int loaders : {1, 2, 3, 7}) {
      for (const bool all : {false, true}) {
        const Loaded loaded = load_with(
            loaders,
            [&](World& world, TestSource& source) {
              return *Checkpointer(keep_all(), path, world).load_latest({&source}, test_versions());
            },
            7, [all](TestSource& source) { source.want_all = all; });
        CHECK(loaded.error == "");
        CHECK(loaded.problem == "");
        CHECK(loaded.step == 500);
      }
    }
    CHECK(verify_checkpoint(path + "/step-00000500") > 50257 * 13);
  }
}

TEST_CASE("State goes 4 to 3 to 7 to 4 ranks and stays what it was") {
  const TemporaryDirectory directory;
  REQUIRE(save(directory.path(), 4, 1, 3) == "");
  std::int64_t step = 1;
  for (const int ranks : {3, 7, 4}) {
    const std::string error = common_error(ranks, [&](World& world) {
      TestSource source(world, specs(), 0);
      Checkpointer checkpointer(keep_all(), directory.path(), world);
      checkpointer.load_latest({&source}, test_versions());
      checkpointer.save(step + 1, {&source}, test_versions());
    });
    CHECK(error == "");
    ++step;
  }
  const Manifest first = read_manifest(Env::posix(), directory / "step-00000001");
  const Manifest last = read_manifest(Env::posix(), directory / "step-00000004");
  CHECK(first.run_id == last.run_id);
  CHECK_FALSE(first.save_id == last.save_id);
  CHECK(load_with(
            2,
            [&](World& world, TestSource& source) {
              return Checkpointer(keep_all(), directory.path(), world)
                  .load(directory.path(), {&source}, test_versions());
            },
            3)
            .problem == "");
}

TEST_CASE("Floating-point types are converted on load") {
  const TemporaryDirectory directory;
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (const DType stored : types) {
    const std::vector<TensorSpec> list = {{"a", {300000}, stored}, {"b", {3}, stored}};
    const std::string path = directory / std::string(to_string(stored));
    REQUIRE(common_error(2, [&](World& world) {
              TestSource source(world, list, 5);
              Checkpointer(keep_all(), path, world).save(1, {&source}, test_versions());
            }) == "");
    for (const DType wanted : types) {
      std::string problem = "not loaded";
      CHECK(common_error(1, [&](World& world) {
              TestSource source(world, list, 0);
              source.load_as = wanted;
              Checkpointer(keep_all(), path, world).load(path, {&source}, test_versions());
              problem = source.problem(5);
            }) == "");
      CHECK(problem == "");
    }
    CHECK_THAT(
        common_error(2,
                     [&](World& world) {
                       TestSource source(world, list, 0);
                       source.load_as = DType::kI32;
                       Checkpointer(keep_all(), path, world).load(path, {&source}, test_versions());
                     }),
        Contains("checkpoint: ") && Contains("'a'") && Contains("int32"));
  }
}

TEST_CASE("Each rank reads its own part only") {
  const TemporaryDirectory directory;
  const std::vector<TensorSpec> list = {{"large", {8 << 20}, DType::kF32}};  // 32 MiB
  REQUIRE(common_error(2, [&](World& world) {
            TestSource source(world, list, 1);
            Checkpointer(keep_all(), directory.path(), world).save(1, {&source}, test_versions());
          }) == "");
  std::uint64_t stored = 0;
  for (const auto& shard : read_manifest(Env::posix(), directory / "step-00000001").shards) {
    stored += shard.bytes;
  }
  std::array<std::uint64_t, 4> read{};
  CHECK(common_error(4, [&](World& world) {
          FaultyEnv env(Env::posix());
          TestSource source(world, list, 0);
          Checkpointer(keep_all(), directory.path(), world, {}, env)
              .load_latest({&source}, test_versions());
          read[static_cast<std::size_t>(world.rank())] = env.bytes_read();
        }) == "");
  for (const std::uint64_t bytes : read) {
    CHECK(bytes > stored / 5);
    CHECK(bytes < stored / 4 + stored / 8);  // two chunks more than the part, and the indices
  }
}

TEST_CASE("What does not fit is refused with its name") {
  const TemporaryDirectory directory;
  REQUIRE(save(directory.path(), 2, 10, 1) == "");
  const auto load_error = [&](std::vector<TensorSpec> list, const VersionTriple& versions,
                              const LoadOptions& options = {}) {
    return common_error(3, [&](World& world) {
      TestSource source(world, list, 0);
      Checkpointer(keep_all(), directory.path(), world).load_latest({&source}, versions, options);
    });
  };
  CHECK(load_error(specs(), test_versions()) == "");
  CHECK_THAT(load_error({{"param/new", {3}}}, test_versions()),
             Contains("checkpoint: ") && Contains("no tensor 'param/new'"));
  CHECK_THAT(load_error({{"param/norm.weight", {18}, DType::kBF16}}, test_versions()),
             Contains("'param/norm.weight'") && Contains("[17]") && Contains("[18]"));
  CHECK_THAT(load_error({{"param/scalar", {1}}}, test_versions()), Contains("'param/scalar'"));

  VersionTriple versions = test_versions();
  versions.model = "model-2";
  CHECK_THAT(load_error(specs(), versions), Contains("another model"));
  versions = test_versions();
  versions.data = "data-2";
  CHECK_THAT(load_error(specs(), versions), Contains("checkpoint: the data set"));
  CHECK(load_error(specs(), versions, {true}) == "");
  versions = test_versions();
  versions.config = "config-2";
  CHECK(load_error(specs(), versions) == "");
  CHECK(load_error(specs(), {}) == "");  // nothing to compare with
}

TEST_CASE("A missing common key is named") {
  class NoCommon final : public StateSource {
   public:
    std::vector<StateSlice> state_to_save() override { return {}; }
    std::vector<StateSlice> state_to_load() override { return {}; }
    void save_common(StateMap& state) override { state["other"] = "1"; }
    void load_common(const StateMap&) override {}
  };
  const TemporaryDirectory directory;
  const std::string error = common_error(2, [&](World& world) {
    NoCommon saved;
    Checkpointer checkpointer(keep_all(), directory.path(), world);
    checkpointer.save(1, {&saved}, test_versions());  // no tensors at all
    TestSource source(world, {}, 0);
    checkpointer.load_latest({&source}, test_versions());
  });
  CHECK_THAT(error, Contains("checkpoint: ") && Contains("test.salt"));
}

TEST_CASE("A changed configuration is logged line by line") {
  const TemporaryDirectory directory;
  const auto logger = std::make_shared<MemoryLogger>();
  const std::string error = common_error(
      2,
      [&](World& world) {
        TestSource source(world, specs(), 1);
        Checkpointer(keep_all(), directory.path(), world, "a: 1\nlr: 0.1\n")
            .save(1, {&source}, test_versions());
        VersionTriple versions = test_versions();
        versions.config = "config-2";
        Checkpointer(keep_all(), directory.path(), world, "a: 1\nlr: 0.2\n")
            .load_latest({&source}, versions);
      },
      logger);
  CHECK(error == "");
  CHECK_THAT(logger->text(),
             Contains("- lr: 0.1\n") && Contains("+ lr: 0.2\n") && !Contains("a: 1"));
}

TEST_CASE("State that is not covered exactly once is not saved") {
  class Wrong final : public StateSource {
   public:
    Wrong(World& world, std::int64_t begin, std::int64_t count, Shape shape)
        : world_(world), begin_(begin), count_(count), shape_(std::move(shape)) {}
    std::vector<StateSlice> state_to_save() override {
      Tensor data(world_.device(), Shape{count_}, DType::kF32);
      std::fill_n(data.data<float>(), count_, 1.0f);
      return {{"t", DType::kF32, shape_, begin_, data}};
    }
    std::vector<StateSlice> state_to_load() override { return {}; }
    void save_common(StateMap&) override {}
    void load_common(const StateMap&) override {}

   private:
    World& world_;
    std::int64_t begin_;
    std::int64_t count_;
    Shape shape_;
  };
  const TemporaryDirectory directory;
  // Rank 0 has [0, 5); rank 1 has what the case says of 10 elements.
  const auto error_with = [&](std::int64_t begin, std::int64_t count, Shape shape = {10}) {
    return common_error(2, [&](World& world) {
      Wrong source(world, world.rank() == 0 ? 0 : begin, world.rank() == 0 ? 5 : count,
                   world.rank() == 0 ? Shape{10} : shape);
      Checkpointer(keep_all(), directory.path(), world).save(1, {&source}, test_versions());
    });
  };
  CHECK_THAT(error_with(5, 4), Contains("usage: ") && Contains("'t'") && Contains("no shard"));
  CHECK_THAT(error_with(6, 4), Contains("elements 5 to 6"));
  CHECK_THAT(error_with(4, 6), Contains("two shards"));
  CHECK_THAT(error_with(5, 6), Contains("which [10] has not") && Contains("rank 1"));
  CHECK_THAT(error_with(5, 5, Shape{2, 5}), Contains("'t' is"));
  CHECK(list_checkpoints(directory.path()).empty());
  CHECK(error_with(5, 5) == "");
}

TEST_CASE("The description and the list say what there is") {
  const TemporaryDirectory directory;
  REQUIRE(save(directory.path(), 3, 20, 1) == "");
  REQUIRE(save(directory.path(), 1, 5, 1) == "");
  std::ofstream(directory / "latest") << "nonsense";
  const auto list = list_checkpoints(directory.path());
  REQUIRE(list.size() == 2);
  CHECK(list[0].step == 5);
  CHECK(list[1].step == 20);
  CHECK(list[1].valid);
  const std::string text = describe_checkpoint(list[1].path);
  CHECK_THAT(text, Contains("\"step\": 20") && Contains("\"world_size\": 3") &&
                       Contains("\"param/embed.weight\": \"fp32 [50257, 13]\"") &&
                       Contains("\"test.number\": 0.1"));
  CHECK(list_checkpoints(directory / "none").empty());
  CHECK_THROWS_WITH(describe_checkpoint(directory / "none"), Contains("no checkpoint at"));
  CHECK_THROWS_WITH(verify_checkpoint(directory.path()), Contains("manifest.json"));
}

TEST_CASE("zstd accepts every shard") {
  if (std::system("zstd --version >/dev/null 2>&1") != 0) {
    WARN("skipped: there is no zstd command");
    return;
  }
  const TemporaryDirectory directory;
  REQUIRE(save(directory.path(), 3, 1, 1) == "");
  for (const auto& entry : Env::posix().list_directory(directory / "step-00000001")) {
    if (entry == "manifest.json") continue;
    const std::string file = directory / ("step-00000001/" + entry);
    CHECK(std::system(("zstd -tq '" + file + "'").c_str()) == 0);
    // What it decompresses to are the chunks, in order.
    CHECK(std::system(("zstd -dcq '" + file + "' >'" + file + ".raw'").c_str()) == 0);
  }
  const Manifest manifest = read_manifest(Env::posix(), directory / "step-00000001");
  std::int64_t bytes = 0;
  for (const auto& tensor : manifest.tensors) {
    bytes += tensor.shape.elements() * static_cast<std::int64_t>(size_of(tensor.dtype));
  }
  std::int64_t found = 0;
  for (int i = 0; i < 3; ++i) {
    const std::string file = shard_file_name(static_cast<std::uint32_t>(i), 3) + ".raw";
    found +=
        static_cast<std::int64_t>(Env::posix().file_size(directory / ("step-00000001/" + file)));
  }
  CHECK(found == bytes);
}

}  // namespace
}  // namespace tessera
