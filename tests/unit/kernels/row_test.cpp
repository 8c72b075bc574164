#include "kernels/row.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "backend/cpu/launch.hpp"
#include "kernels/losses.hpp"
#include "kernels/norms.hpp"
#include "kernels/reductions.hpp"
#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Plays a block of `threads` threads, as a GPU has them: each computes its share of the lanes, one
/// after the other, and applies its share of the columns.
template <int Phase, typename Functor>
void replay_phases(const Functor& f, std::int64_t row, int threads,
                   typename Functor::Value* results) {
  if constexpr (Phase < static_cast<int>(Functor::kReductions.size())) {
    std::array<typename Functor::Value, kernels::kRowLanes> lanes;
    for (int thread = threads - 1; thread >= 0; --thread) {
      for (int lane = thread; lane < kernels::kRowLanes; lane += threads) {
        lanes[static_cast<std::size_t>(lane)] = kernels::row_partial<Phase>(f, row, lane, results);
      }
    }
    results[Phase] =
        kernels::combine_lanes<Functor::kReductions[Phase]>(lanes.data(), kernels::kRowLanes);
    f.template finish<Phase>(row, results);
    replay_phases<Phase + 1>(f, row, threads, results);
  }
}

template <typename Functor>
void replay_rows(const Functor& f, std::int64_t rows, int threads) {
  for (std::int64_t row = 0; row < rows; ++row) {
    typename Functor::Value results[Functor::kReductions.size() + 1] = {};
    replay_phases<0>(f, row, threads, results);
    for (int thread = threads - 1; thread >= 0; --thread) {
      for (std::int64_t i = thread; i < f.columns; i += threads) f.apply(row, i, results);
    }
  }
}

std::vector<float> floats(const Values& values) { return {values.begin(), values.end()}; }

bool equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a row functor gives the same bits for 1, 8, 32 and 256 lanes as the CPU launcher") {
  const auto device = make_cpu_device();
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t columns : {1, 5, 64, 100, 256, 257, 1000, 4096}) {
    INFO(columns << " columns");
    const auto x = floats(random_values(kRows * columns, 1));
    const auto dy = floats(random_values(kRows * columns, 2));
    const auto w = floats(random_values(columns, 3));
    const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(columns - 1), -1};
    const auto size = static_cast<std::size_t>(kRows * columns);
    struct Results {
      std::vector<float> y, rstd, dx, losses, lse;
    };
    const auto compute = [&](const auto& run) {
      Results r{std::vector<float>(size), std::vector<float>(kRows), std::vector<float>(size),
                std::vector<float>(kRows), std::vector<float>(kRows)};
      run(kernels::RmsNorm<float>{x.data(), w.data(), r.y.data(), r.rstd.data(), columns, 1e-5f});
      run(kernels::RmsNormBackward<float, kernels::Write::kStore>{
          dy.data(), x.data(), w.data(), r.rstd.data(), r.dx.data(), columns});
      run(kernels::CrossEntropy<float>{x.data(), targets.data(), r.losses.data(), r.lse.data(),
                                       columns});
      return r;
    };
    const Results launched =
        compute([&](const auto& functor) { cpu::run_rows(*device, kRows, functor); });
    for (const int threads : {1, 8, 32, 256}) {
      INFO(threads << " threads");
      const Results replayed =
          compute([&](const auto& functor) { replay_rows(functor, kRows, threads); });
      CHECK(equal(launched.y, replayed.y));
      CHECK(equal(launched.rstd, replayed.rstd));
      CHECK(equal(launched.dx, replayed.dx));
      CHECK(equal(launched.losses, replayed.losses));
      CHECK(equal(launched.lse, replayed.lse));
    }
  }
}

TEST_CASE("lanes are combined by halves") {
  std::array<float, 8> lanes{1e8f, 1.0f, 2.0f, 3.0f, -1e8f, 4.0f, 5.0f, 6.0f};
  // ((1e8 − 1e8) + (2 + 5)) + ((1 + 4) + (3 + 6)); left to right, 1 to 3 would be lost.
  CHECK(kernels::combine_lanes<kernels::Reduction::kSum>(lanes.data(), 8) == 21.0f);
  std::array<float, 4> maximum{3.0f, -1.0f, 7.0f, 7.0f};
  CHECK(kernels::combine_lanes<kernels::Reduction::kMax>(maximum.data(), 4) == 7.0f);
}

TEST_CASE("partial results are added pairwise") {
  std::array<double, 5> parts{1.0, 2.0, 3.0, 4.0, 5.0};
  CHECK(kernels::combine_partials(parts.data(), 5) == 15.0);
  CHECK(kernels::combine_partials(parts.data(), 0) == 0.0);
}
