#include <memory>
#include <thread>

#include "backend/cpu/product.hpp"
#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::Operators;

struct Sizes {
  std::int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{0, 5, 3}, {5, 0, 3},  {5, 3, 0},    {1, 1, 1},    {1, 64, 257},
                            {3, 5, 7}, {17, 1, 5}, {64, 64, 64}, {257, 17, 65}};

Values product(const Values& a, bool ta, const Values& b, bool tb, const Sizes& s) {
  Values c(static_cast<std::size_t>(s.m * s.n), 0.0);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      for (std::int64_t l = 0; l < s.k; ++l) {
        c[static_cast<std::size_t>(i * s.n + j)] +=
            a[static_cast<std::size_t>(ta ? l * s.m + i : i * s.k + l)] *
            b[static_cast<std::size_t>(tb ? j * s.k + l : l * s.n + j)];
      }
    }
  }
  return c;
}

OperatorCase matmul_case(const Sizes& s, bool ta, bool tb, Kind result) {
  return {"matmul",
          {input(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1),
           input(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2)},
          {output({s.m, s.n}, result)},
          [=](Operators& ops, Stream& stream, const Tensors& in, const Tensors& out,
              bool accumulate) { ops.matmul(stream, in[0], ta, in[1], tb, out[0], accumulate); },
          [=](const std::vector<Values>& in) {
            return std::vector<Values>{product(in[0], ta, in[1], tb, s)};
          },
          4e-6,
          4e-6,
          true};
}

}  // namespace

TEST_CASE("products agree with FP64, transposed, accumulated, of every size") {
  for (const Sizes& sizes : kSizes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        INFO(sizes.m << " " << sizes.n << " " << sizes.k << (ta ? " aT" : "") << (tb ? " bT" : ""));
        check_case(matmul_case(sizes, ta, tb, Kind::kElement), false);
        check_case(matmul_case(sizes, ta, tb, Kind::kF32), false);
      }
    }
  }
}

TEST_CASE("the reference product agrees with the library's") {
  const auto device = make_cpu_device();
  for (const Sizes& s : kSizes) {
    if (s.m * s.n * s.k == 0) continue;
    for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const Values a = random_values(s.m * s.k, 1);
      const Values b = random_values(s.k * s.n, 2);
      const Tensor ta(*device, {s.m * s.k}, DType::kF32);
      const Tensor tb(*device, {s.k * s.n}, DType::kF32);
      const Tensor library(*device, {s.m * s.n}, DType::kF32);
      const Tensor eigen(*device, {s.m * s.n}, DType::kF32);
      upload(ta, a);
      upload(tb, b);
      upload(library, random_values(s.m * s.n, 3));
      upload(eigen, random_values(s.m * s.n, 3));
      cpu::Product p{.m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .a = ta.raw_data(),
                     .b = tb.raw_data(),
                     .c = library.raw_data(),
                     .transpose_a = (variant & 1) != 0,
                     .transpose_b = (variant & 2) != 0,
                     .accumulate = (variant & 4) != 0};
      cpu::library_product(p, *device);
      p.c = eigen.raw_data();
      cpu::eigen_product(p, 0, s.m / 2);
      cpu::eigen_product(p, s.m / 2, s.m - s.m / 2);
      const Values got = download(library);
      const Values want = download(eigen);
      double largest = 0.0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        largest = std::max(largest, std::abs(got[i] - want[i]));
      }
      CHECK(largest < 1e-4);
    }
  }
}

TEST_CASE("BF16 products of the library agree with FP64, from several threads at once") {
  if (!cpu::library_takes(DType::kBF16)) {
    WARN("skipped: this processor or build has no BF16 product");
    return;
  }
  const Sizes s{65, 33, 129};
  const Values a = rounded(random_values(s.m * s.k, 1), DType::kBF16);
  const Values b = rounded(random_values(s.k * s.n, 2), DType::kBF16);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Tensor> results;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    devices.push_back(make_cpu_device());
    results.emplace_back(*devices.back(), Shape{s.m, s.n}, DType::kF32);
  }
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const Tensor ta(*devices[rank], {s.m, s.k}, DType::kBF16);
    const Tensor tb(*devices[rank], {s.k, s.n}, DType::kBF16);
    upload(ta, a);
    upload(tb, b);
    threads.emplace_back([&, ta, tb, rank] {
      const cpu::Product p{.m = s.m,
                           .n = s.n,
                           .k = s.k,
                           .a = ta.raw_data(),
                           .b = tb.raw_data(),
                           .c = results[rank].raw_data(),
                           .operand_type = DType::kBF16};
      for (int i = 0; i < 50; ++i) cpu::library_product(p, *devices[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Values want = product(a, false, b, false, s);
  for (const Tensor& result : results) {
    const Values got = download(result);
    double largest = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(got[i] - want[i]));
    }
    CHECK(largest < 1e-4);
    CHECK(same_bits({result}, {results[0]}));
  }
}

TEST_CASE("a product repeats its bits") {
  const OperatorCase each = matmul_case({65, 33, 129}, false, true, Kind::kElement);
  for (const DType element : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto device = make_cpu_device({.threads = 2});
    const Tensors first = run_case(each, *device, element, false);
    for (int i = 0; i < 5; ++i) CHECK(same_bits(first, run_case(each, *device, element, false)));
  }
}

TEST_CASE("mismatched operands of a product are refused") {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  auto& ops = kernels::operators(*device);
  const Tensor a(*device, {2, 3}, DType::kF32);
  const Tensor b(*device, {3, 4}, DType::kF32);
  const Tensor half(*device, {3, 4}, DType::kBF16);
  const Tensor c(*device, {2, 4}, DType::kF32);
  CHECK_THROWS(ops.matmul(*stream, a, true, b, false, c, false));
  CHECK_THROWS(ops.matmul(*stream, a, false, b, true, c, false));
  CHECK_THROWS(ops.matmul(*stream, a, false, half, false, c, false));
}
