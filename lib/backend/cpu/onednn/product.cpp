#include "backend/cpu/product.hpp"

#include <cstddef>
#include <map>
#include <mutex>
#include <tuple>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "backend/cpu/workspace.hpp"
#include "base/check.hpp"

namespace tessera::cpu {

namespace {

using Key =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, bool, DType, DType, int>;

/// Shapes of experts' batches change from step to step; beyond this many the cache starts anew.
constexpr std::size_t kCachedPrimitives = 1024;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed, DType dtype) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

/// A primitive and the scratch memory it needs. oneDNN's own scratchpad belongs to the thread that
/// made the primitive, while ranks that are threads share primitives: so the caller brings it.
struct Planned {
  dnnl::matmul primitive;
  dnnl::memory::desc scratchpad;
};

/// FP32 needs no primitive, whose making costs half a millisecond a shape.
void fp32_product(const Product& p) {
  const dnnl_status_t status = dnnl_sgemm(
      p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f,
      static_cast<const float*>(p.a), p.transpose_a ? p.m : p.k, static_cast<const float*>(p.b),
      p.transpose_b ? p.k : p.n, p.accumulate ? 1.0f : 0.0f, static_cast<float*>(p.c), p.n);
  TESSERA_CHECK(status == dnnl_success, "oneDNN's sgemm [{}, {}, {}] gave status {}", p.m, p.n, p.k,
                static_cast<int>(status));
}

Planned make_primitive(const Product& p) {
  const dnnl::matmul::desc description(matrix(p.m, p.k, p.transpose_a, p.operand_type),
                                       matrix(p.k, p.n, p.transpose_b, p.operand_type),
                                       matrix(p.m, p.n, false, p.result_type));
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops add_to_result;
    add_to_result.append_sum(1.0f);
    attributes.set_post_ops(add_to_result);
  }
  const dnnl::matmul::primitive_desc plan(description, attributes, engine());
  return {dnnl::matmul(plan), plan.scratchpad_desc()};
}

/// The primitive of a shape; the number of threads is part of what oneDNN plans with.
Planned primitive_for(const Product& p, int threads) {
  static std::mutex mutex;
  static std::map<Key, Planned> cache;
  const Key key{
      p.m,           p.n,    p.k, p.transpose_a, p.transpose_b, p.accumulate, p.operand_type,
      p.result_type, threads};
  const std::lock_guard lock(mutex);
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() >= kCachedPrimitives) cache.clear();
  return cache.emplace(key, make_primitive(p)).first->second;
}

void native_product(const Product& p, Device& device) {
  try {
    thread_local dnnl::stream stream(engine());
    const Planned planned = primitive_for(p, device.threads());
    const Workspace<std::byte> scratch(device,
                                       static_cast<std::int64_t>(planned.scratchpad.get_size()));
    const dnnl::memory scratchpad(planned.scratchpad, engine(), scratch.data());
    const dnnl::memory a(matrix(p.m, p.k, p.transpose_a, p.operand_type), engine(),
                         const_cast<void*>(p.a));
    const dnnl::memory b(matrix(p.k, p.n, p.transpose_b, p.operand_type), engine(),
                         const_cast<void*>(p.b));
    const dnnl::memory c(matrix(p.m, p.n, false, p.result_type), engine(), p.c);
    planned.primitive.execute(stream, {{DNNL_ARG_SRC, a},
                                       {DNNL_ARG_WEIGHTS, b},
                                       {DNNL_ARG_DST, c},
                                       {DNNL_ARG_SCRATCHPAD, scratchpad}});
    stream.wait();
  } catch (const dnnl::error& error) {
    fail(ErrorCode::kInternal, "oneDNN product [{}, {}, {}] of {}: {}", p.m, p.n, p.k,
         to_string(p.operand_type), error.what());
  }
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace

std::string_view product_library() { return "onednn"; }

bool library_takes(DType operand_type) {
  if (operand_type == DType::kF32) return true;
  return operand_type == DType::kBF16 &&
         dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
}

bool library_is_fast_with(DType operand_type) {
  if (operand_type == DType::kF32) return true;
  // Without its instruction oneDNN emulates BF16 at a fifth of the speed of FP32, and Intel's
  // processors run the instruction at half of it (measured with oneDNN 2.6 on Sapphire Rapids: 94
  // and 184 GFLOP/s), unless they have tiles.
  static const bool fast = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    if (isa >= dnnl::cpu_isa::avx512_core_amx) return true;
    return isa >= dnnl::cpu_isa::avx512_core_bf16 && !is_intel();
  }();
  return operand_type == DType::kBF16 && fast;
}

void library_product(const Product& p, Device& device) {
  // The setting belongs to the calling thread, and ranks may be threads.
  const int threads = device.threads();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  if (p.operand_type == DType::kF32) return fp32_product(p);
  native_product(p, device);
}

}  // namespace tessera::cpu
