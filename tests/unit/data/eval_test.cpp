// Held-out data: the same number of micro batches on all ranks, padded with masked sequences.
#include <tessera/data.hpp>
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using testing::TemporaryDirectory;

constexpr int kSeqLen = 4;

std::string numbered(int first, int sequences) {
  std::string text;
  for (int i = first; i < first + sequences; ++i) text.append(kSeqLen, static_cast<char>(i));
  return text + static_cast<char>(first + sequences);
}

Config config_for(const std::string& train, int ranks, int micro) {
  Config config;
  config.data.train = {train};
  config.data.seq_len = kSeqLen;
  config.trainer.micro_batch_size = micro;
  config.trainer.gradient_accumulation_steps = 1;
  config.trainer.train_batch_size = static_cast<std::int64_t>(micro) * ranks;
  return config;
}

struct Held {
  std::vector<std::size_t> batches;       // per rank
  std::map<std::int64_t, int> sequences;  // index -> first token
  std::int64_t padded = 0;
  std::int64_t unmasked = 0;
  std::int64_t routed = 0;
  std::vector<std::string> faults;
};

Held evaluate(const Config& config, int ranks, std::int64_t batches) {
  std::vector<std::vector<MicroBatch>> all(static_cast<std::size_t>(ranks));
  Held held;
  std::vector<std::unique_ptr<Held>> per_rank(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    auto mine = std::make_unique<Held>();
    DataLoader loader(config, world);
    for (int round = 0; round < 3; ++round) {  // always the same ones
      *mine = Held();
      for (const MicroBatch& batch : loader.eval_batches(batches)) {
        mine->batches.resize(1);
        ++mine->batches[0];
        mine->unmasked += batch.unmasked_tokens;
        mine->routed += batch.routed_tokens;
        for (std::int64_t row = 0; row < batch.tokens.size(0); ++row) {
          const std::int64_t index = batch.sequence_index.data<std::int64_t>()[row];
          const std::int32_t* targets = batch.targets.data<std::int32_t>() + row * kSeqLen;
          const std::int32_t token = batch.tokens.data<std::int32_t>()[row * kSeqLen];
          if (index >= 0) {
            mine->sequences[index] = token;
          } else {
            ++mine->padded;
            for (int t = 0; t < kSeqLen; ++t) {
              if (targets[t] != kIgnoreTarget) mine->faults.push_back("padding counts");
            }
          }
        }
      }
    }
    if (loader.cursor() != 0) mine->faults.push_back("evaluation moved the cursor");
    per_rank[static_cast<std::size_t>(world.rank())] = std::move(mine);
  });
  std::size_t sequences = 0;
  for (const auto& mine : per_rank) {
    held.batches.push_back(mine->batches.empty() ? 0 : mine->batches[0]);
    sequences += mine->sequences.size();
    held.sequences.insert(mine->sequences.begin(), mine->sequences.end());
    held.padded += mine->padded;
    held.unmasked += mine->unmasked;
    held.routed += mine->routed;
    held.faults.insert(held.faults.end(), mine->faults.begin(), mine->faults.end());
  }
  if (sequences != held.sequences.size()) held.faults.push_back("a sequence on two ranks");
  return held;
}

TEST_CASE("Thirteen held-out sequences on 1 to 4 ranks") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "train", std::ios::binary) << numbered(0, 50);
  std::ofstream(directory / "eval", std::ios::binary) << numbered(100, 13);
  for (const int ranks : {1, 2, 3, 4}) {
    Config config = config_for(directory / "train", ranks, 2);
    config.data.eval = {directory / "eval"};
    const Held held = evaluate(config, ranks, 100);
    CHECK(held.faults.empty());
    const std::size_t batches = static_cast<std::size_t>((13 + 2 * ranks - 1) / (2 * ranks));
    CHECK(held.batches == std::vector<std::size_t>(static_cast<std::size_t>(ranks), batches));
    CHECK(held.sequences.size() == 13);
    for (const auto& [index, token] : held.sequences) CHECK(token == 100 + index);
    CHECK(held.padded == static_cast<std::int64_t>(batches) * ranks * 2 - 13);
    CHECK(held.unmasked == 13 * kSeqLen);
    CHECK(held.routed == 13 * kSeqLen);

    const Held fewer = evaluate(config, ranks, 1);
    CHECK(fewer.batches == std::vector<std::size_t>(static_cast<std::size_t>(ranks), 1));
    CHECK(fewer.sequences.size() == static_cast<std::size_t>(2 * ranks));
    CHECK(evaluate(config, ranks, 0).sequences.empty());
  }
}

TEST_CASE("The end of train is held out") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "train", std::ios::binary) << numbered(0, 100);
  Config config = config_for(directory / "train", 2, 4);
  config.data.eval_fraction = 0.07;
  const Held held = evaluate(config, 2, 100);
  CHECK(held.faults.empty());
  CHECK(held.sequences.size() == 7);
  CHECK(held.sequences.begin()->second == 93);

  std::set<int> trained;
  std::int64_t per_epoch = 0;
  run_ranks(1, [&](World& world) {
    DataLoader loader(config_for(directory / "train", 1, 1), world);
    per_epoch = loader.sequences_per_epoch();
    for (std::int64_t i = 0; i < per_epoch; ++i) {
      for (const MicroBatch& batch : loader.next_step()) {
        trained.insert(batch.tokens.data<std::int32_t>()[0]);
      }
    }
  });
  CHECK(per_epoch == 95);  // the default holds out a twentieth
  CHECK(trained.size() == 95);
  CHECK(*trained.rbegin() == 94);
}

TEST_CASE("An evaluation without held-out data is refused at the start") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "train", std::ios::binary) << numbered(0, 100);
  Config config = config_for(directory / "train", 1, 1);
  config.data.eval_fraction = 0.0;
  std::string at_use;
  std::string at_start;
  run_ranks(1, [&](World& world) {
    try {
      DataLoader(config, world).eval_batches(1);
    } catch (const Error& error) {
      at_use = error.what();
    }
    config.trainer.eval_interval = 10;
    try {
      DataLoader(config, world);
    } catch (const Error& error) {
      at_start = error.what();
    }
  });
  CHECK_THAT(at_use, Catch::Contains("nothing is held out"));
  CHECK_THAT(at_start, Catch::Contains("nothing is held out"));
}

}  // namespace
}  // namespace tessera
