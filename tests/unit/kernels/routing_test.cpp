#include "kernels/routing.hpp"

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "kernels/team.hpp"
#include "operator_case.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;
using kernels::RouteOptions;
using kernels::Routing;

Routing make_routing(Device& device, std::int64_t tokens, std::int64_t experts, int k) {
  Routing r;
  r.probs = Tensor(device, {tokens, experts}, DType::kF32);
  r.choice = Tensor(device, {tokens, k}, DType::kI32);
  r.position = Tensor(device, {tokens, k}, DType::kI32);
  r.weight = Tensor(device, {tokens, k}, DType::kF32);
  r.counts = Tensor(device, {experts}, DType::kI64);
  r.first_counts = Tensor(device, {experts}, DType::kI64);
  r.prob_sums = Tensor(device, {experts}, DType::kF32);
  r.z_sum = Tensor(device, {1}, DType::kF32);
  r.lse = Tensor(device, {tokens}, DType::kF32);
  return r;
}

struct Fixture {
  std::unique_ptr<Device> device = make_cpu_device({.threads = 2, .poison = true});
  std::unique_ptr<Stream> stream = device->make_stream("test");

  Routing route(const Values& logits, std::int64_t experts, const RouteOptions& options,
                const Values& valid = {}) {
    const std::int64_t tokens = static_cast<std::int64_t>(logits.size()) / experts;
    const Tensor tensor(*device, {tokens, experts}, DType::kF32);
    upload(tensor, logits);
    Tensor mask;
    if (!valid.empty()) {
      mask = Tensor(*device, {tokens}, DType::kI32);
      upload(mask, valid);
    }
    Routing r = make_routing(*device, tokens, experts, options.top_k);
    kernels::operators(*device).route(*stream, tensor, mask, options, r);
    return r;
  }

  Values backward(const Routing& r, const RouteOptions& options, const Values& grad_weight,
                  const Values& prob_scale, double z_scale) {
    const Tensor weight(*device, r.weight.shape(), DType::kF32);
    upload(weight, grad_weight);
    Tensor scale;
    if (!prob_scale.empty()) {
      scale = Tensor(*device, {r.probs.size(1)}, DType::kF32);
      upload(scale, prob_scale);
    }
    const Tensor grad(*device, r.probs.shape(), DType::kF32);
    kernels::operators(*device).route_backward(*stream, r, options, weight, scale,
                                               static_cast<float>(z_scale), grad, false);
    return download(grad);
  }
};

const Values kDocument{2, 1, 0, -1, 1.9, 1.2, .1,  0, 3,  .5, .2, .1,
                       0, 2, 1, .5, 2.5, 0,   1.5, 0, .1, .2, .3, 2};

void check_near(const Values& got, const Values& want, double margin) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(margin));
}

/// Columns of a [k][S] table as [S, k].
Values by_token(const nlohmann::json& table) {
  Values values;
  for (std::size_t s = 0; s < table[0].size(); ++s) {
    for (const auto& row : table) values.push_back(row[s].get<double>());
  }
  return values;
}

/// Members that are threads and meet at a barrier.
class ThreadTeam {
 public:
  struct Barrier {
    std::mutex mutex;
    std::condition_variable passed;
    int size = 1;
    int waiting = 0;
    int generation = 0;
  };
  ThreadTeam(Barrier& barrier, int rank) : barrier_(barrier), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return barrier_.size; }
  void sync() const {
    std::unique_lock lock(barrier_.mutex);
    const int mine = barrier_.generation;
    if (++barrier_.waiting == barrier_.size) {
      barrier_.waiting = 0;
      ++barrier_.generation;
      barrier_.passed.notify_all();
    } else {
      barrier_.passed.wait(lock, [&] { return barrier_.generation != mine; });
    }
  }

 private:
  Barrier& barrier_;
  int rank_;
};

}  // namespace

TEST_CASE("top-2 routing gives the documented vector") {
  Fixture f;
  const Routing all = f.route(kDocument, 4, {.top_k = 2});
  CHECK(download(all.choice) == Values{0, 1, 0, 1, 0, 1, 1, 2, 0, 2, 3, 2});
  CHECK(download(all.position) == Values{0, 1, 1, 2, 2, 3, 0, 0, 3, 1, 0, 2});
  CHECK(download(all.counts) == Values{4, 4, 3, 1});
  CHECK(download(all.first_counts) == Values{4, 1, 0, 1});

  const Routing one = f.route(kDocument, 4, {.top_k = 2, .capacity = 3});
  check_near(download(one.weight),
             {.731059, .268941, .668188, .331812, 1, 0, .731059, .268941, 0, 1, .845535, .154465},
             1e-6);
  CHECK(download(one.position) == Values{0, 1, 1, 2, 2, -1, 0, 0, -1, 1, 0, 2});
  CHECK(download(one.counts) == Values{4, 4, 3, 1});

  const Routing half = f.route(kDocument, 4, {.top_k = 2, .capacity = 2});
  check_near(download(half.weight), {.731059, .268941, 1, 0, 0, 0, .731059, .268941, 0, 1, 1, 0},
             1e-6);

  const Values sums = download(half.prob_sums);
  const Values first = download(half.first_counts);
  double balance = 0.0;
  for (std::size_t e = 0; e < 4; ++e) balance += 4.0 * (sums[e] / 6.0) * (first[e] / 6.0);
  CHECK(balance == Approx(1.5312021).epsilon(1e-6));
}

TEST_CASE("routing agrees with DeepSpeed's gates and their gradients") {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/tests/golden/gates.json");
  REQUIRE(file.good());
  const auto golden = nlohmann::json::parse(file);
  Fixture f;
  for (const auto& c : golden["cases"]) {
    INFO(c["name"].get<std::string>());
    const auto experts = c["experts"].get<std::int64_t>();
    const auto tokens = c["tokens"].get<double>();
    const int k = c["k"].get<int>();
    const RouteOptions options{
        .top_k = k,
        .capacity = c["drop_tokens"].get<bool>() ? c["capacity"].get<std::int64_t>() : 0,
        .probs_policy = c["drop_policy"] == "probs" && k >= 3};
    Values logits;
    for (const auto& row : c["logits"]) {
      for (const auto& value : row) logits.push_back(value.get<double>());
    }
    const Routing r = f.route(logits, experts, options);
    CHECK(download(r.choice) == by_token(c["choices"]));
    Values positions = by_token(c["kept_positions"]);
    const Values kept = by_token(c["kept"]);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] == 0.0) positions[i] = -1;
    }
    CHECK(download(r.position) == positions);
    CHECK(download(r.counts) == c["exp_counts"].get<Values>());
    check_near(download(r.weight), by_token(c["weights"]), 1e-6);
    CHECK(download(r.z_sum)[0] / tokens == Approx(c["z_loss"].get<double>()).epsilon(1e-5));

    const Values first = download(r.first_counts);
    const Values sums = download(r.prob_sums);
    const double share = k == 2 ? 1.0 : k;
    const double factor = static_cast<double>(experts) / (tokens * tokens * share);
    double balance = 0.0;
    Values prob_scale(first.size());
    for (std::size_t e = 0; e < first.size(); ++e) {
      balance += factor * sums[e] * first[e];
      prob_scale[e] = factor * first[e] * c["aux_cotangent"].get<double>();
    }
    CHECK(balance == Approx(c["l_aux"].get<double>()).epsilon(1e-5));
    Values want;
    for (const auto& row : c["logits_gradient"]) {
      for (const auto& value : row) want.push_back(value.get<double>());
    }
    check_near(f.backward(r, options, by_token(c["weight_cotangent"]), prob_scale, 0.0), want,
               3e-6);
  }
}

TEST_CASE("padding is never routed or counted, and has no gradient") {
  Fixture f;
  const Values logits = random_values(12 * 5, 1);
  Values valid(12, 1.0);
  Values without;
  for (std::size_t s = 0; s < 12; ++s) {
    if (s % 3 == 1) valid[s] = 0.0;
    for (std::size_t e = 0; e < 5 && s % 3 != 1; ++e) without.push_back(logits[s * 5 + e]);
  }
  for (const bool probs_policy : {false, true}) {
    const RouteOptions options{.top_k = 2, .capacity = 3, .probs_policy = probs_policy};
    const Routing padded = f.route(logits, 5, options, valid);
    const Routing bare = f.route(without, 5, options);
    CHECK(download(padded.counts) == download(bare.counts));
    CHECK(download(padded.first_counts) == download(bare.first_counts));
    check_near(download(padded.prob_sums), download(bare.prob_sums), 1e-6);
    check_near(download(padded.z_sum), download(bare.z_sum), 1e-5);
    const Values positions = download(padded.position);
    const Values weights = download(padded.weight);
    const Values gradient = f.backward(padded, options, Values(24, 1.0), Values(5, 1.0), 1.0);
    Values kept;
    for (std::size_t s = 0; s < 12; ++s) {
      for (std::size_t j = 0; j < 2; ++j) {
        if (valid[s] != 0.0) {
          kept.push_back(positions[s * 2 + j]);
        } else {
          CHECK(positions[s * 2 + j] == -1);
          CHECK(weights[s * 2 + j] == 0.0);
        }
      }
      for (std::size_t e = 0; e < 5 && valid[s] == 0.0; ++e) CHECK(gradient[s * 5 + e] == 0.0);
    }
    CHECK(kept == download(bare.position));
  }
}

TEST_CASE("router gradients agree with central differences") {
  Fixture f;
  const std::size_t experts = 6;
  for (const int k : {1, 2, 3}) {
    INFO("k " << k);
    const RouteOptions options{.top_k = k, .capacity = 4};
    const Values logits = random_values(9 * 6, 3);
    const Routing r = f.route(logits, 6, options);
    const Values position = download(r.position);
    const Values choice = download(r.choice);
    const Values grad_weight = random_values(9 * k, 4);
    const Values prob_scale = random_values(6, 5);
    const double z_scale = 0.03;
    const auto loss = [&](const std::vector<Values>& in) {
      double total = 0.0;
      for (std::size_t s = 0; s < 9; ++s) {
        double sum = 0.0;
        for (std::size_t e = 0; e < experts; ++e) sum += std::exp(in[0][s * experts + e]);
        const auto p = [&](std::size_t e) { return std::exp(in[0][s * experts + e]) / sum; };
        double kept = 0.0;
        for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
          const std::size_t at = s * static_cast<std::size_t>(k) + j;
          if (position[at] >= 0) kept += p(static_cast<std::size_t>(choice[at]));
        }
        for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
          const std::size_t at = s * static_cast<std::size_t>(k) + j;
          if (position[at] < 0) continue;
          const double weight = p(static_cast<std::size_t>(choice[at])) / (k == 1 ? 1.0 : kept);
          total += weight * grad_weight[at];
        }
        for (std::size_t e = 0; e < experts; ++e) total += p(e) * prob_scale[e];
        total += z_scale * std::log(sum) * std::log(sum);
      }
      return Values{total};
    };
    const Values want = numeric_gradients(loss, {logits}, {1.0}, {0}, 1000)[0];
    check_near(f.backward(r, options, grad_weight, prob_scale, z_scale), want, 3e-6);
  }
}

TEST_CASE("noise changes second choices only, and by its key only") {
  Fixture f;
  const Values logits = random_values(400 * 8, 1);
  const RouteOptions plain{.top_k = 2};
  const Tensor index(*f.device, {400}, DType::kI64);
  Values counters(400);
  for (std::size_t s = 0; s < 400; ++s) counters[s] = 1e6 + static_cast<double>(s);
  upload(index, counters);
  const RouteOptions noisy{.top_k = 2, .sample_second = true, .seed = 42, .noise_index = index};
  const RouteOptions other{.top_k = 2, .sample_second = true, .seed = 43, .noise_index = index};
  const Values a = download(f.route(logits, 8, plain).choice);
  const Values b = download(f.route(logits, 8, noisy).choice);
  const Values c = download(f.route(logits, 8, other).choice);
  CHECK(b == download(f.route(logits, 8, noisy).choice));
  CHECK(b != c);
  int changed = 0;
  for (std::size_t s = 0; s < 400; ++s) {
    CHECK(a[2 * s] == b[2 * s]);
    CHECK(b[2 * s] != b[2 * s + 1]);
    changed += a[2 * s + 1] != b[2 * s + 1] ? 1 : 0;
  }
  CHECK(changed > 100);

  // The last 100 tokens alone, with their counters, are sampled as in the whole.
  const Tensor last(*f.device, {100}, DType::kI64);
  upload(last, Values(counters.begin() + 300, counters.end()));
  const RouteOptions part{.top_k = 2, .sample_second = true, .seed = 42, .noise_index = last};
  const Values alone = download(f.route({logits.begin() + 300 * 8, logits.end()}, 8, part).choice);
  CHECK(alone == Values(b.begin() + 600, b.end()));
}

TEST_CASE("no tokens, one expert and NaN logits are routed") {
  Fixture f;
  const Routing none = f.route({}, 4, {.top_k = 2, .capacity = 3});
  CHECK(download(none.counts) == Values{0, 0, 0, 0});
  CHECK(download(none.prob_sums) == Values{0, 0, 0, 0});
  CHECK(download(none.z_sum) == Values{0});
  const Routing one = f.route({1, 2, 3}, 1, {.top_k = 1, .capacity = 2});
  CHECK(download(one.position) == Values{0, 1, -1});
  CHECK(download(one.weight) == Values{1, 1, 0});
  const Routing bad = f.route({std::nan(""), std::nan(""), std::nan("")}, 3, {.top_k = 2});
  CHECK(download(bad.choice) == Values{0, 1});
}

TEST_CASE("a team of threads numbers routes as a serial one does") {
  constexpr std::int64_t kTokens = 1000;
  constexpr std::int64_t kExperts = 7;
  const Values random = random_integers(kTokens * 2, -1, kExperts - 1, 8);
  const std::vector<std::int32_t> choice(random.begin(), random.end());
  struct Result {
    std::vector<std::int32_t> position = std::vector<std::int32_t>(kTokens * 2);
    std::vector<std::int64_t> counts = std::vector<std::int64_t>(kExperts);
    std::vector<std::int64_t> first = std::vector<std::int64_t>(kExperts);
  };
  const auto number = [&](int size) {
    Result result;
    std::vector<std::int64_t> scratch(static_cast<std::size_t>(size * kExperts));
    const kernels::RoutePositions functor{choice.data(),
                                          result.position.data(),
                                          result.counts.data(),
                                          result.first.data(),
                                          scratch.data(),
                                          kTokens,
                                          kExperts,
                                          120,
                                          2};
    ThreadTeam::Barrier barrier;
    barrier.size = size;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] { functor(ThreadTeam(barrier, rank), 0); });
    }
    for (std::thread& thread : threads) thread.join();
    return result;
  };
  Result serial;
  std::vector<std::int64_t> scratch(kExperts);
  kernels::RoutePositions{choice.data(),
                          serial.position.data(),
                          serial.counts.data(),
                          serial.first.data(),
                          scratch.data(),
                          kTokens,
                          kExperts,
                          120,
                          2}(kernels::SerialTeam{}, 0);
  for (const int size : {1, 2, 5}) {
    const Result team = number(size);
    CHECK(team.position == serial.position);
    CHECK(team.counts == serial.counts);
    CHECK(team.first == serial.first);
  }
}

TEST_CASE("rows are gathered and combined by slot") {
  using kernels::Operators;
  for (const std::int64_t n : {1, 5, 64, 257}) {
    INFO(n << " columns");
    const CaseTensor index{{5}, Kind::kI32, {2, -1, 0, 2, 6}};
    check_case(
        {"gather_rows",
         {input({7, n}, 1), index},
         {output({5, n})},
         [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
           ops.gather_rows(s, in[0], in[1], out[0]);
         },
         [=](const std::vector<Values>& in) {
           Values y;
           for (const double from : in[1]) {
             for (std::int64_t i = 0; i < n; ++i) {
               y.push_back(
                   from < 0
                       ? 0.0
                       : in[0][static_cast<std::size_t>(static_cast<std::int64_t>(from) * n + i)]);
             }
           }
           return std::vector<Values>{y};
         }});
    const CaseTensor slot{{3, 2}, Kind::kI32, {4, 1, -1, 6, -1, -1}};
    const auto combined = [=](const std::vector<Values>& in, bool weighted) {
      Values y(static_cast<std::size_t>(3 * n), 0.0);
      for (std::size_t r = 0; r < 6; ++r) {
        if (in[1][r] < 0) continue;
        const double weight = weighted ? in[2][r] : 1.0;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto from = static_cast<std::size_t>(static_cast<std::int64_t>(in[1][r]) * n + i);
          y[(r / 2) * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)] +=
              weight * in[0][from];
        }
      }
      return y;
    };
    for (const bool weighted : {true, false}) {
      check_case(
          {"combine_rows",
           {input({7, n}, 1), slot, input({3, 2}, 2, Kind::kF32)},
           {output({3, n})},
           [=](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool accumulate) {
             ops.combine_rows(s, in[0], in[1], weighted ? in[2] : Tensor(), out[0], accumulate);
           },
           [=](const std::vector<Values>& in) {
             return std::vector<Values>{combined(in, weighted)};
           },
           2e-6,
           2e-6,
           true});
    }
    check_case({"combine_rows_backward",
                {input({7, n}, 1), slot, input({3, 2}, 2, Kind::kF32), input({3, n}, 3)},
                {output({7, n}), output({3, 2}, Kind::kF32)},
                [](Operators& ops, Stream& s, const Tensors& in, const Tensors& out, bool) {
                  ops.fill_zero(s, out[0]);
                  ops.combine_rows_backward(s, in[3], in[0], in[1], in[2], out[0], out[1]);
                },
                [=](const std::vector<Values>& in) {
                  return numeric_gradients(
                      [&](const std::vector<Values>& x) {
                        return combined({x[0], in[1], x[1]}, true);
                      },
                      {in[0], in[2]}, in[3], {0, 1}, 40);
                }});
  }
}
