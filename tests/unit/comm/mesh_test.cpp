#include "comm/mesh.hpp"

#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <mutex>
#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace ts = tessera;

namespace {

ts::MoeOptions experts(int count, int parallel) {
  ts::MoeOptions moe;
  moe.num_experts = count;
  moe.expert_parallel_size = parallel;
  return moe;
}

}  // namespace

TEST_CASE("the shape of the mesh follows ranks and experts") {
  CHECK(ts::mesh_shape(6, nullptr).shard == 6);
  CHECK(ts::mesh_shape(6, nullptr).expert == 1);
  const ts::MoeOptions automatic = experts(8, 0);
  CHECK(ts::mesh_shape(6, &automatic).expert == 2);
  const ts::MoeOptions two = experts(8, 2);
  CHECK(ts::mesh_shape(4, &two).expert == 2);
}

TEST_CASE("an expert_parallel_size that does not fit names all numbers") {
  const ts::MoeOptions moe = experts(12, 5);
  try {
    ts::mesh_shape(8, &moe);
    FAIL("accepted");
  } catch (const ts::Error& error) {
    CHECK(error.code() == ts::ErrorCode::kUsage);
    CHECK_THAT(error.message(), Catch::Contains("5") && Catch::Contains("8 ranks") &&
                                    Catch::Contains("12 experts") &&
                                    Catch::Contains("possible: 1, 2, 4"));
  }
  const ts::MoeOptions negative = experts(12, -1);
  CHECK_THROWS_AS(ts::mesh_shape(8, &negative), ts::Error);
}

TEST_CASE("expert groups are consecutive ranks, expert-data groups those with the same experts") {
  std::mutex mutex;
  std::set<std::string> expert_groups;
  std::set<std::string> data_groups;
  ts::run_ranks(6, [&](ts::World& world) {
    ts::MeshShape shape;
    shape.shard = 6;
    shape.expert = 2;
    const ts::Mesh mesh(world.comm(), shape);
    const auto members = [&](ts::Communicator& comm) {
      std::string text;
      for (const std::string& rank : comm.all_gather_bytes(std::to_string(world.rank()))) {
        text += rank;
      }
      return text;
    };
    const std::string expert = members(mesh.expert());
    const std::string data = members(mesh.expert_data());
    const std::lock_guard lock(mutex);
    expert_groups.insert(expert);
    data_groups.insert(data);
  });
  CHECK(expert_groups == std::set<std::string>{"01", "23", "45"});
  CHECK(data_groups == std::set<std::string>{"024", "135"});
}

TEST_CASE("groups equal to the data group share its windows") {
  bool same = false;
  ts::run_ranks(2, [&](ts::World& world) {
    ts::MeshShape shape;
    shape.shard = 2;
    const ts::Mesh dense(world.comm(), shape);
    shape.expert = 2;
    const ts::Mesh sparse(world.comm(), shape);
    if (world.rank() == 0) {
      same = &dense.expert_data() == &world.comm() && dense.expert().size() == 1 &&
             &sparse.expert() == &world.comm() && sparse.expert_data().size() == 1;
    }
  });
  CHECK(same);
}
