#include "comm/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/check.hpp"
#include "base/half.hpp"

namespace tessera {

namespace {

// Elements per block: the stack of partial sums stays in the first-level cache.
constexpr std::int64_t kBlock = 512;
// Depth of the stack: enough for 2^20 ranks.
constexpr int kMaxLevels = 21;

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <typename T>
  static T apply(T a, T b) {
    if (is_nan(a)) return a;
    return is_nan(b) || a < b ? b : a;
  }
};

struct Min {
  template <typename T>
  static T apply(T a, T b) {
    if (is_nan(a)) return a;
    return is_nan(b) || b < a ? b : a;
  }
};

template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, BF16> || std::is_same_v<T, F16>, float, T>;

template <typename Op, typename T>
void reduce_typed(std::span<const std::byte* const> sources, std::byte* output,
                  std::int64_t elements) {
  using A = Accumulator<T>;
  const auto at = [&](std::size_t rank) { return reinterpret_cast<const T*>(sources[rank]); };
  T* const out = reinterpret_cast<T*>(output);
  const std::size_t ranks = sources.size();
  if (ranks == 1) {
    if (output != sources[0])
      std::memcpy(out, at(0), static_cast<std::size_t>(elements) * sizeof(T));
    return;
  }
  if (ranks == 2) {
    const T* a = at(0);
    const T* b = at(1);
    for (std::int64_t i = 0; i < elements; ++i) {
      out[i] = static_cast<T>(Op::template apply<A>(static_cast<A>(a[i]), static_cast<A>(b[i])));
    }
    return;
  }
  std::array<std::array<A, kBlock>, kMaxLevels> stack;
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, elements - begin);
    int depth = 0;
    const auto merge_top = [&] {
      A* left = stack[static_cast<std::size_t>(depth - 2)].data();
      const A* right = stack[static_cast<std::size_t>(depth - 1)].data();
      for (std::int64_t i = 0; i < count; ++i) left[i] = Op::template apply<A>(left[i], right[i]);
      --depth;
    };
    // Leaves come in pairs; a finished pair at position p closes as many subtrees as p / 2 + 1 has
    // trailing zero bits, as in a binary counter.
    for (std::size_t rank = 0; rank < ranks; rank += 2) {
      A* top = stack[static_cast<std::size_t>(depth++)].data();
      const T* a = at(rank) + begin;
      if (rank + 1 == ranks) {
        for (std::int64_t i = 0; i < count; ++i) top[i] = static_cast<A>(a[i]);
        break;
      }
      const T* b = at(rank + 1) + begin;
      for (std::int64_t i = 0; i < count; ++i) {
        top[i] = Op::template apply<A>(static_cast<A>(a[i]), static_cast<A>(b[i]));
      }
      for (int closed = std::countr_zero(rank / 2 + 1); closed > 0; --closed) merge_top();
    }
    while (depth > 1) merge_top();
    for (std::int64_t i = 0; i < count; ++i)
      out[begin + i] = static_cast<T>(stack[0][static_cast<std::size_t>(i)]);
  }
}

template <typename T>
void reduce_op(ReduceOp op, std::span<const std::byte* const> sources, std::byte* output,
               std::int64_t elements) {
  switch (op) {
    case ReduceOp::kSum: return reduce_typed<Sum, T>(sources, output, elements);
    case ReduceOp::kMax: return reduce_typed<Max, T>(sources, output, elements);
    case ReduceOp::kMin: return reduce_typed<Min, T>(sources, output, elements);
  }
}

}  // namespace

void reduce_tree(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                 std::byte* output, std::int64_t elements) {
  if (elements == 0) return;
  switch (dtype) {
    case DType::kF32: return reduce_op<float>(op, sources, output, elements);
    case DType::kF64: return reduce_op<double>(op, sources, output, elements);
    case DType::kBF16: return reduce_op<BF16>(op, sources, output, elements);
    case DType::kF16: return reduce_op<F16>(op, sources, output, elements);
    case DType::kI8: return reduce_op<std::int8_t>(op, sources, output, elements);
    case DType::kU8: return reduce_op<std::uint8_t>(op, sources, output, elements);
    case DType::kI32: return reduce_op<std::int32_t>(op, sources, output, elements);
    case DType::kI64: return reduce_op<std::int64_t>(op, sources, output, elements);
    default: break;
  }
  TESSERA_CHECK(is_reducible(dtype), "no reduction of {}", to_string(dtype));
}

bool is_reducible(DType dtype) { return dtype != DType::kF8E4M3 && dtype != DType::kF8E5M2; }

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
  }
  return "unknown";
}

}  // namespace tessera
