#include "comm/launch.hpp"

#include <tessera/error.hpp>

#include <cstdlib>
#include <map>
#include <string>

#include <catch2/catch.hpp>

namespace ts = tessera;

namespace {

using Variables = std::map<std::string, std::string>;

// Sets variables for a scope, and hides those of the launcher that may have started this test.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                             "PMIX_RANK", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) before_[name] = value;
      names_.emplace_back(name);
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::string> before_;
};

}  // namespace

TEST_CASE("launchers are known by their variables") {
  SECTION("none") {
    const Environment environment(Variables{});
    CHECK_FALSE(ts::detect_launcher());
    CHECK_FALSE(ts::launched_by_mpi());
  }
  SECTION("Open MPI") {
    const Environment environment({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    REQUIRE(ts::detect_launcher());
    CHECK(ts::detect_launcher()->launcher == "Open MPI");
    CHECK(ts::detect_launcher()->rank == 2);
    CHECK(ts::detect_launcher()->size == 4);
    CHECK(ts::launched_by_mpi());
  }
  SECTION("MPICH") {
    const Environment environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
    CHECK(ts::detect_launcher()->launcher == "MPICH");
    CHECK(ts::launched_by_mpi());
  }
  SECTION("Slurm") {
    const Environment environment({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}});
    CHECK(ts::detect_launcher()->size == 8);
    CHECK(ts::launched_by_mpi());
  }
  SECTION("a shell in a Slurm allocation, a batch script") {
    const Environment shell({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
    CHECK_FALSE(ts::launched_by_mpi());
    const Environment batch(Variables{{{"SLURM_PROCID", "0"}}});
    CHECK_FALSE(ts::launched_by_mpi());
  }
  SECTION("nonsense") {
    const Environment environment({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", ""}});
    CHECK(ts::detect_launcher()->rank == -1);
    CHECK(ts::detect_launcher()->size == -1);
  }
}

TEST_CASE("threads per rank come from the CPU masks of the node") {
  using Masks = std::vector<ts::CpuSet>;
  CHECK(ts::threads_per_rank(Masks{{0, 1}, {2, 3, 4}}, 0) == 2);  // disjoint: its own
  CHECK(ts::threads_per_rank(Masks{{0, 1}, {2, 3, 4}}, 1) == 3);
  CHECK(ts::threads_per_rank(Masks{{0, 1, 2, 3}, {0, 1, 2, 3}}, 1) == 2);  // shared: a share
  CHECK(ts::threads_per_rank(Masks{{0, 1}, {1, 2}, {3}}, 0) == 1);
  CHECK(ts::threads_per_rank(Masks{{0}, {0}, {0}}, 2) == 1);  // at least one
  CHECK(ts::threads_per_rank(Masks{{5, 6, 7}}, 0) == 3);
  CHECK_FALSE(ts::own_cpus().empty());
  CHECK(ts::threads_per_local_rank(100000) == 1);
}

TEST_CASE("local ranks share the cores of the process") {
  int threads = 0;
  ts::run_ranks(2, [&](ts::World& world) {
    const int mine = ts::threads_per_rank(world.comm());
    if (world.rank() == 0) threads = mine;
  });
  CHECK(threads == ts::threads_per_local_rank(2));
}

TEST_CASE("exit codes of exceptions") {
  CHECK(ts::exit_code_of(std::make_exception_ptr(ts::Error(ts::ErrorCode::kCheckpoint, "x"))) == 4);
  CHECK(ts::exit_code_of(std::make_exception_ptr(std::runtime_error("x"))) == 1);
  CHECK(ts::exit_code_of(std::make_exception_ptr(3)) == 1);
}
