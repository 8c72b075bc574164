// Memory: saving and loading need a few chunks beyond the state, however often they happen.
#include <fstream>

#include <catch2/catch.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "checkpoint_fixture.hpp"
#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using testing::common_error;
using testing::TemporaryDirectory;
using testing::test_versions;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasurable = false;
#else
constexpr bool kMeasurable = true;
#endif

std::int64_t resident_bytes() {
  std::int64_t total = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::int64_t peak_bytes() {
  struct rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// One large tensor that stays where it is.
class OneTensor final : public StateSource {
 public:
  OneTensor(World& world, std::int64_t elements)
      : data_(world.device(), Shape{elements}, DType::kF32) {
    for (std::int64_t i = 0; i < elements; ++i) {
      data_.data<float>()[i] = static_cast<float>(i % 1009) * 0.37f;
    }
  }
  std::vector<StateSlice> state_to_save() override { return slices(); }
  std::vector<StateSlice> state_to_load() override { return slices(); }
  void save_common(StateMap&) override {}
  void load_common(const StateMap&) override {}

 private:
  std::vector<StateSlice> slices() const { return {{"t", DType::kF32, data_.shape(), 0, data_}}; }
  Tensor data_;
};

TEST_CASE("Fifty saves leave memory where it was") {
  if (!kMeasurable) {
    WARN("skipped: a sanitizer holds memory back");
    return;
  }
  const TemporaryDirectory directory;
  std::int64_t early = 0;
  std::int64_t late = 0;
  CHECK(common_error(1, [&](World& world) {
          OneTensor source(world, 1 << 20);
          CheckpointOptions options;
          options.keep_last = 1;
          Checkpointer checkpointer(options, directory.path(), world);
          for (int step = 1; step <= 50; ++step) {
            checkpointer.save(step, {&source}, test_versions());
            if (step == 5) early = resident_bytes();
          }
          late = resident_bytes();
        }) == "");
  CHECK(late - early < (1 << 20));
}

TEST_CASE("Saving and loading hold a few chunks, not the state") {
  if (!kMeasurable) {
    WARN("skipped: a sanitizer holds memory back");
    return;
  }
  const TemporaryDirectory directory;
  std::int64_t grown = 0;
  CHECK(common_error(1, [&](World& world) {
          OneTensor source(world, 32 << 20);  // 128 MiB
          const std::int64_t before = peak_bytes();
          Checkpointer checkpointer({}, directory.path(), world);
          checkpointer.save(1, {&source}, test_versions());
          checkpointer.load_latest({&source}, test_versions());
          grown = peak_bytes() - before;
        }) == "");
  CHECK(grown < (24 << 20));
}

}  // namespace
}  // namespace tessera
