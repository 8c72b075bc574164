// Dealing sequences: every one once per epoch, the same for any number of ranks, resumable.
#include <tessera/data.hpp>
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using testing::TemporaryDirectory;

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Sequence i of the stream (seq_len 4) has inputs i i i i, and the last token of its targets is
// i + 1. Divided unevenly into five files, cut inside sequences.
constexpr int kSeqLen = 4;
void write_numbered(const TemporaryDirectory& directory, int sequences) {
  std::string stream;
  for (int i = 0; i < sequences; ++i) stream.append(kSeqLen, static_cast<char>(i));
  stream.push_back(static_cast<char>(sequences));
  const std::size_t cuts[] = {0, 7, 50, 51, stream.size() - 3, stream.size()};
  for (int f = 0; f < 5; ++f) {
    write_text(directory / ("part-" + std::to_string(f) + ".txt"),
               stream.substr(cuts[f], cuts[f + 1] - cuts[f]));
  }
}

Config config_for(std::vector<std::string> train, int ranks, int micro, int accumulation) {
  Config config;
  config.data.train = std::move(train);
  config.data.seq_len = kSeqLen;
  config.data.eval_fraction = 0.0;
  config.trainer.micro_batch_size = micro;
  config.trainer.gradient_accumulation_steps = accumulation;
  config.trainer.train_batch_size = static_cast<std::int64_t>(micro) * accumulation * ranks;
  return config;
}

// What was dealt: position in the order -> number of the sequence; and what was wrong.
struct Dealt {
  std::map<std::int64_t, int> at;
  std::vector<std::string> faults;
  std::mutex mutex;

  void take(const MicroBatch& batch) {
    const std::lock_guard lock(mutex);
    for (std::int64_t row = 0; row < batch.tokens.size(0); ++row) {
      const std::int64_t index = batch.sequence_index.data<std::int64_t>()[row];
      const std::int32_t* tokens = batch.tokens.data<std::int32_t>() + row * kSeqLen;
      const std::int32_t* targets = batch.targets.data<std::int32_t>() + row * kSeqLen;
      for (int t = 0; t < kSeqLen; ++t) {
        const int wanted_target = t + 1 < kSeqLen ? tokens[0] : tokens[0] + 1;
        if (tokens[t] != tokens[0]) faults.push_back("token");
        if (targets[t] != wanted_target) faults.push_back("target");
      }
      if (!at.emplace(index, tokens[0]).second) faults.push_back("position dealt twice");
    }
  }
};

TEST_CASE("Every sequence is dealt once per epoch whatever the number of ranks") {
  const TemporaryDirectory directory;
  const int kSequences = 100;
  write_numbered(directory, kSequences);

  std::map<std::int64_t, int> reference;
  for (const int ranks : {1, 2, 3, 4}) {
    Dealt dealt;
    const int micro = 2;
    const int accumulation = 2;
    const int batch = ranks * micro * accumulation;
    const int steps = (2 * kSequences + batch - 1) / batch;  // wraps in the middle of a batch
    std::vector<std::int64_t> cursors(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](World& world) {
      DataLoader loader(config_for({directory / "part-*.txt"}, ranks, micro, accumulation), world);
      for (int s = 0; s < steps; ++s) {
        for (const MicroBatch& micro_batch : loader.next_step()) dealt.take(micro_batch);
      }
      cursors[static_cast<std::size_t>(world.rank())] = loader.cursor();
    });
    CHECK(dealt.faults.empty());
    CHECK(dealt.at.size() == static_cast<std::size_t>(steps * batch));
    for (const std::int64_t cursor : cursors) CHECK(cursor == steps * batch);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::set<int> seen;
      for (int place = 0; place < kSequences; ++place) {
        seen.insert(dealt.at.at(epoch * kSequences + place));
      }
      CHECK(seen.size() == kSequences);  // union and no duplicates
    }
    dealt.at.erase(dealt.at.lower_bound(2 * kSequences), dealt.at.end());
    if (reference.empty()) reference = dealt.at;
    CHECK(dealt.at == reference);
  }
  std::vector<int> first_epoch;
  for (int place = 0; place < kSequences; ++place) first_epoch.push_back(reference.at(place));
  CHECK_FALSE(std::is_sorted(first_epoch.begin(), first_epoch.end()));
}

TEST_CASE("Without shuffling the order is that of the files") {
  const TemporaryDirectory directory;
  write_numbered(directory, 20);
  Dealt dealt;
  run_ranks(2, [&](World& world) {
    Config config = config_for({directory / "part-*.txt"}, 2, 1, 5);
    config.data.shuffle = false;
    DataLoader loader(config, world);
    for (int s = 0; s < 3; ++s) {
      for (const MicroBatch& batch : loader.next_step()) dealt.take(batch);
    }
  });
  CHECK(dealt.faults.empty());
  for (int position = 0; position < 30; ++position) {
    CHECK(dealt.at.at(position) == position % 20);
  }
}

TEST_CASE("A data set smaller than a batch wraps") {
  const TemporaryDirectory directory;
  write_numbered(directory, 20);
  Dealt dealt;
  run_ranks(1, [&](World& world) {
    DataLoader loader(config_for({directory / "part-*.txt"}, 1, 50, 1), world);
    for (const MicroBatch& batch : loader.next_step()) dealt.take(batch);
  });
  CHECK(dealt.faults.empty());
  std::map<int, int> times;
  for (const auto& [position, sequence] : dealt.at) ++times[sequence];
  CHECK(times.size() == 20);
  for (const auto& [sequence, count] : times) CHECK((count == 2 || count == 3));
}

TEST_CASE("A resumed loader goes on where the saved one stood, on any number of ranks") {
  const TemporaryDirectory directory;
  write_numbered(directory, 100);
  const std::vector<std::string> files = {directory / "part-*.txt"};
  Dealt whole;
  run_ranks(1, [&](World& world) {
    DataLoader loader(config_for(files, 1, 12, 25), world);
    for (const MicroBatch& batch : loader.next_step()) whole.take(batch);
  });
  Dealt parts;
  StateMap state;
  const int rank_counts[] = {4, 2, 3, 1};
  for (const int ranks : rank_counts) {
    StateMap saved;
    run_ranks(ranks, [&](World& world) {
      Config config = config_for(files, ranks, 12 / ranks, 2);
      DataLoader loader(config, world);
      if (!state.empty()) loader.load_common(state);
      for (const MicroBatch& batch : loader.next_step()) parts.take(batch);
      if (world.rank() == 0) loader.save_common(saved);
    });
    state = saved;
  }
  CHECK(whole.faults.empty());
  CHECK(parts.faults.empty());
  CHECK(parts.at.size() == 96);
  for (const auto& [position, sequence] : parts.at) CHECK(whole.at.at(position) == sequence);
}

// The error that all ranks raise, or how they differ.
std::string common_error(const Config& config, int ranks,
                         const std::function<void(DataLoader&)>& use = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks), "no error");
  run_ranks(ranks, [&](World& world) {
    try {
      DataLoader loader(config, world);
      if (use) use(loader);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(world.rank())] =
          std::string(to_string(error.code())) + ": " + error.what();
    }
  });
  for (const std::string& error : errors) {
    if (error != errors[0]) return "ranks differ: " + errors[0] + " | " + error;
  }
  return errors[0];
}

TEST_CASE("What a checkpoint says must fit") {
  const TemporaryDirectory directory;
  write_numbered(directory, 20);
  Config config = config_for({directory / "part-*.txt"}, 1, 1, 1);
  StateMap state;
  common_error(config, 1, [&](DataLoader& loader) {
    loader.next_step();
    loader.save_common(state);
  });
  REQUIRE(state.size() == 4);
  CHECK(state.at("data.cursor") == "1");
  const auto load_error = [&](const StateMap& changed, std::int64_t seq_len = kSeqLen) {
    Config other = config;
    other.data.seq_len = seq_len;
    return common_error(other, 1, [&](DataLoader& loader) { loader.load_common(changed); });
  };
  CHECK(load_error(state) == "no error");
  using Catch::Contains;
  CHECK_THAT(load_error(state, 8),
             Contains("checkpoint:") && Contains("data.seq_len 4") && Contains("it is 8"));
  for (const char* key : {"data.cursor", "data.seed", "data.seq_len", "data.fingerprint"}) {
    StateMap changed = state;
    changed.erase(key);
    CHECK_THAT(load_error(changed), Contains(key) && Contains("checkpoint:"));
    changed[key] = "{";
    CHECK_THAT(load_error(changed), Contains(key) && Contains("checkpoint:"));
  }
  StateMap negative = state;
  negative["data.cursor"] = "-3";
  CHECK_THAT(load_error(negative), Contains("data.cursor"));
}

TEST_CASE("The order keeps the seed of the checkpoint") {
  const TemporaryDirectory directory;
  write_numbered(directory, 100);
  Config config = config_for({directory / "part-*.txt"}, 1, 50, 1);
  StateMap state;
  Dealt first;
  common_error(config, 1, [&](DataLoader& loader) {
    for (const MicroBatch& batch : loader.next_step()) first.take(batch);
    loader.save_common(state);
  });
  config.run.seed += 1;
  common_error(config, 1, [&](DataLoader& loader) {
    loader.load_common(state);
    for (const MicroBatch& batch : loader.next_step()) first.take(batch);
  });
  std::set<int> seen;
  for (const auto& [position, sequence] : first.at) seen.insert(sequence);
  CHECK(seen.size() == 100);
}

TEST_CASE("The end of a stream is used as far as whole sequences go") {
  const TemporaryDirectory directory;
  const int kBatch = 3;
  for (const std::size_t extra : {0, 1, 2, kSeqLen - 1, kSeqLen, kSeqLen * kBatch - 1}) {
    for (const int files : {1, 4}) {
      // n * seq_len + 1 tokens are n sequences.
      const std::size_t tokens = 5 * kSeqLen * kBatch + 1 + extra;
      std::vector<std::string> paths;
      for (int f = 0; f < files; ++f) {
        const std::size_t begin = tokens * static_cast<std::size_t>(f) / files;
        const std::size_t end = tokens * static_cast<std::size_t>(f + 1) / files;
        paths.push_back(directory / std::to_string(f));
        write_text(paths.back(), std::string(end - begin, 'x'));
      }
      std::int64_t sequences = 0;
      std::set<std::int64_t> rows;
      const std::string error =
          common_error(config_for(paths, 1, kBatch, 1), 1, [&](DataLoader& loader) {
            sequences = loader.sequences_per_epoch();
            for (int step = 0; step < 12; ++step) {
              for (const MicroBatch& batch : loader.next_step()) rows.insert(batch.tokens.size(0));
            }
          });
      CHECK(error == "no error");
      CHECK(sequences == static_cast<std::int64_t>(5 * kBatch + extra / kSeqLen));
      CHECK(rows == std::set<std::int64_t>{kBatch});
    }
  }
}

TEST_CASE("The fingerprint is that of the content, not of names or ranks") {
  const TemporaryDirectory directory;
  const std::string text(10'000'000, 'q');  // several blocks
  write_text(directory / "a", text);
  write_text(directory / "b1", text.substr(0, 4'000'001));
  write_text(directory / "b2", text.substr(4'000'001));
  std::string changed = text;
  changed[9'999'998] = 'r';
  write_text(directory / "c", changed);
  const auto fingerprint = [&](std::vector<std::string> names, int ranks, bool shuffle = true,
                               std::int64_t seq_len = 64) {
    for (std::string& name : names) name = directory / name;
    Config config = config_for(names, ranks, 1, 1);
    config.data.shuffle = shuffle;
    config.data.seq_len = seq_len;
    std::vector<std::string> found(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](World& world) {
      found[static_cast<std::size_t>(world.rank())] = DataLoader(config, world).fingerprint();
    });
    for (const std::string& other : found) CHECK(other == found[0]);
    return found[0];
  };
  const std::string base = fingerprint({"a"}, 1);
  CHECK(fingerprint({"a"}, 3) == base);
  CHECK(fingerprint({"b1", "b2"}, 2) == base);
  CHECK(fingerprint({"b2", "b1"}, 1) == base);  // all tokens are equal
  CHECK(fingerprint({"c"}, 1) != base);
  CHECK(fingerprint({"a"}, 1, false) != base);
  CHECK(fingerprint({"a"}, 1, true, 65) != base);
}

}  // namespace
}  // namespace tessera
