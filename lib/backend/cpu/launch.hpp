// Launchers of the single-source functors on the CPU: one per shape (lib/kernels/row.hpp,
// columns.hpp, team.hpp). Threads divide elements, rows or columns; no result depends on how.
//
// Functors are copied into a local variable first, so that the compiler knows that no store changes
// them. TESSERA_INDEPENDENT says that iterations do not depend on each other, though an output may
// be an input.
#pragma once

#include <tessera/device.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backend/cpu/workspace.hpp"
#include "kernels/columns.hpp"
#include "kernels/reductions.hpp"
#include "kernels/row.hpp"

#if defined(__clang__)
#define TESSERA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TESSERA_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace tessera::cpu {

/// Elements below which a loop is not worth a second thread.
inline constexpr std::int64_t kGrainElements = 16384;

/// f(i) for i in [0, count).
template <typename Functor>
void run_elements(Device& device, std::int64_t count, const Functor& functor) {
  device.parallel_for(count, kGrainElements, [&functor](std::int64_t begin, std::int64_t end) {
    const Functor f = functor;
    TESSERA_INDEPENDENT
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

/// f(i) for i in [0, count), where one call works on about `elements` elements.
template <typename Functor>
void run_items(Device& device, std::int64_t count, std::int64_t elements, const Functor& functor) {
  const std::int64_t grain = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(1, elements));
  device.parallel_for(count, grain, [&functor](std::int64_t begin, std::int64_t end) {
    const Functor f = functor;
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

/// The phases of one row from `Phase` on.
template <int Phase, typename Functor>
[[gnu::always_inline]] inline void reduce_row(const Functor& f, std::int64_t row,
                                              typename Functor::Value* results) {
  constexpr int kPhases = static_cast<int>(Functor::kReductions.size());
  if constexpr (Phase < kPhases) {
    using Value = typename Functor::Value;
    constexpr kernels::Reduction kReduction = Functor::kReductions[Phase];
    constexpr int kLanes = kernels::kRowLanes;
    alignas(64) Value lanes[kLanes];
    const std::int64_t columns = f.columns;
    // Lanes without an element hold the identity; leaving them out changes nothing.
    const int width = static_cast<int>(
        std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(columns, 1, kLanes))));
    for (int l = 0; l < width; ++l) lanes[l] = kernels::identity<kReduction, Value>();
    std::int64_t base = 0;
    for (; base + kLanes <= columns; base += kLanes) {
      TESSERA_INDEPENDENT
      for (int l = 0; l < kLanes; ++l) {
        lanes[l] =
            kernels::combine<kReduction>(lanes[l], f.template term<Phase>(row, base + l, results));
      }
    }
    const int rest = static_cast<int>(columns - base);
    TESSERA_INDEPENDENT
    for (int l = 0; l < rest; ++l) {
      lanes[l] =
          kernels::combine<kReduction>(lanes[l], f.template term<Phase>(row, base + l, results));
    }
    results[Phase] = kernels::combine_lanes<kReduction>(lanes, width);
    f.template finish<Phase>(row, results);
    reduce_row<Phase + 1>(f, row, results);
  }
}

/// A row functor over rows [0, rows).
template <typename Functor>
void run_rows(Device& device, std::int64_t rows, const Functor& functor) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, functor.columns));
  device.parallel_for(rows, grain, [&functor](std::int64_t begin, std::int64_t end) {
    const Functor f = functor;
    for (std::int64_t row = begin; row < end; ++row) {
      typename Functor::Value results[Functor::kReductions.size() + 1] = {};
      reduce_row<0>(f, row, results);
      std::int64_t i = 0;
      constexpr int kWide = 64;
      if constexpr (requires { f.template apply_wide<kWide>(row, i, results); }) {
        for (; i + kWide <= f.columns; i += kWide) f.template apply_wide<kWide>(row, i, results);
      }
      TESSERA_INDEPENDENT
      for (std::int64_t c = i; c < f.columns; ++c) f.apply(row, c, results);
    }
  });
}

/// Columns that one piece of a column loop covers.
inline constexpr std::int64_t kColumnBlock = 128;

/// A column functor over `rows` rows.
template <typename Functor>
void run_column_sums(Device& device, std::int64_t rows, const Functor& functor) {
  const std::int64_t blocks = (functor.columns + kColumnBlock - 1) / kColumnBlock;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, rows * kColumnBlock));
  device.parallel_for(blocks, grain, [&functor, rows](std::int64_t begin, std::int64_t end) {
    const Functor f = functor;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kColumnBlock;
      const auto width = static_cast<int>(std::min(kColumnBlock, f.columns - first));
      alignas(64) float total[kColumnBlock] = {};
      for (std::int64_t row = 0; row < rows; row += kernels::kColumnRows) {
        alignas(64) float part[kColumnBlock] = {};
        const std::int64_t last = std::min(rows, row + kernels::kColumnRows);
        for (std::int64_t r = row; r < last; ++r) {
          TESSERA_INDEPENDENT
          for (int c = 0; c < width; ++c) part[c] += f.term(r, first + c);
        }
        for (int c = 0; c < width; ++c) total[c] += part[c];
      }
      for (int c = 0; c < width; ++c) f.finish(first + c, total[c]);
    }
  });
}

/// A column scan over `rows` rows.
template <typename Functor>
void run_column_scan(Device& device, std::int64_t rows, const Functor& functor) {
  const std::int64_t blocks = (functor.columns + kColumnBlock - 1) / kColumnBlock;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, rows * kColumnBlock));
  device.parallel_for(blocks, grain, [&functor, rows](std::int64_t begin, std::int64_t end) {
    const Functor f = functor;
    const std::int64_t first = begin * kColumnBlock;
    const std::int64_t last = std::min(f.columns, end * kColumnBlock);
    for (std::int64_t row = 0; row < rows; ++row) {
      TESSERA_INDEPENDENT
      for (std::int64_t c = first; c < last; ++c) f.step(row, c);
    }
  });
}

/// The sum of term(i) over [0, count), in the order of lib/kernels/reductions.hpp.
template <typename Term>
typename Term::Value run_sum(Device& device, std::int64_t count, const Term& term) {
  using Value = typename Term::Value;
  const std::int64_t chunks = (count + kernels::kChunkElements - 1) / kernels::kChunkElements;
  const Workspace<Value> partials(device, chunks);
  const std::int64_t whole = count / kernels::kChunkElements;
  run_rows(device, whole,
           kernels::ChunkSum<Term>{term, partials.data(), 0, kernels::kChunkElements});
  run_rows(device, chunks - whole,
           kernels::ChunkSum<Term>{term, partials.data(), whole, count % kernels::kChunkElements});
  return kernels::combine_partials(partials.data(), chunks);
}

}  // namespace tessera::cpu
