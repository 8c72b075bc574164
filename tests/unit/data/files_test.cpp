// Finding a data set's files, and the same error on all ranks where they cannot be used.
#include <tessera/data.hpp>
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "data/file_list.hpp"
#include "support/faulty_env.hpp"
#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using Catch::Contains;
using testing::FaultyEnv;
using testing::TemporaryDirectory;

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Config config_for(std::vector<std::string> train, int ranks) {
  Config config;
  config.data.train = std::move(train);
  config.data.seq_len = 8;
  config.trainer.micro_batch_size = 1;
  config.trainer.gradient_accumulation_steps = 1;
  config.trainer.train_batch_size = ranks;
  return config;
}

// An Env that does not see one path, or sees it shorter.
class BlindEnv final : public Env {
 public:
  BlindEnv(std::string hidden, bool shorter) : hidden_(std::move(hidden)), shorter_(shorter) {}
  std::unique_ptr<RandomAccessFile> open_for_read(const std::string& path) override {
    if (path == hidden_ && shorter_) return base().open_for_read(path + ".short");
    if (path == hidden_) throw Error(ErrorCode::kData, "cannot open '" + path + "': not for you");
    return base().open_for_read(path);
  }
  std::unique_ptr<WritableFile> open_for_write(const std::string& p, OpenMode m) override {
    return base().open_for_write(p, m);
  }
  bool exists(const std::string& path) override { return path != hidden_ && base().exists(path); }
  bool is_directory(const std::string& p) override { return base().is_directory(p); }
  std::uint64_t file_size(const std::string& p) override { return base().file_size(p); }
  std::vector<std::string> list_directory(const std::string& p) override {
    return base().list_directory(p);
  }
  void make_directories(const std::string& p) override { base().make_directories(p); }
  void sync_directory(const std::string& p) override { base().sync_directory(p); }
  void rename(const std::string& a, const std::string& b) override { base().rename(a, b); }
  void truncate(const std::string& p, std::uint64_t s) override { base().truncate(p, s); }
  void remove_file(const std::string& p) override { base().remove_file(p); }
  void remove_tree(const std::string& p) override { base().remove_tree(p); }
  std::uint64_t free_bytes(const std::string& p) override { return base().free_bytes(p); }

 private:
  static Env& base() { return Env::posix(); }
  std::string hidden_;
  bool shorter_;
};

// The error that all three ranks raise, or how they differ. `blind_rank` uses `blind`.
std::string common_error(const Config& config, Env* blind = nullptr, int blind_rank = -1) {
  const int ranks = 3;
  std::vector<std::string> errors(ranks, "no error");
  run_ranks(ranks, [&](World& world) {
    try {
      Env& env = world.rank() == blind_rank ? *blind : Env::posix();
      DataLoader loader(config, world, env);
      loader.next_step();
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

TEST_CASE("Patterns find files in sorted order") {
  const TemporaryDirectory directory;
  for (const char* folder : {"data/b", "data/a/deep", "data/.hidden"}) {
    std::filesystem::create_directories(directory / folder);
  }
  for (const char* name :
       {"data/10.txt", "data/9.txt", "data/x[1].txt", "data/a/1.txt", "data/a/deep/2.txt",
        "data/b/3.txt", "data/.hidden/4.txt", "data/.5.txt", "data/6.csv"}) {
    write_text(directory / name, "x");
  }
  const std::string prefix = directory / "data/";
  const auto expand = [&](const std::string& pattern) {
    std::vector<std::string> found = expand_patterns(Env::posix(), {prefix + pattern});
    for (std::string& path : found) path = path.substr(prefix.size());
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(expand("*.txt") == Names{"10.txt", "9.txt", "x[1].txt"});
  CHECK(expand("?.txt") == Names{"9.txt"});
  CHECK(expand("[0-9]*") == Names{"10.txt", "6.csv", "9.txt"});
  CHECK(expand("x[1].txt") == Names{"x[1].txt"});
  CHECK(expand("*/*.txt") == Names{"a/1.txt", "b/3.txt"});
  CHECK(expand("**/*.txt") ==
        Names{"10.txt", "9.txt", "a/1.txt", "a/deep/2.txt", "b/3.txt", "x[1].txt"});
  CHECK(expand("a/*") == Names{"a/1.txt"});  // not the directory deep
  CHECK(expand("not/there.txt") == Names{"not/there.txt"});
  CHECK_THROWS_WITH(expand("*.none"), Contains("no file matches") && Contains("*.none"));
}

TEST_CASE("Files that cannot be used are named, by all ranks alike") {
  const TemporaryDirectory directory;
  write_text(directory / "good.txt", std::string(100, 'g'));
  write_text(directory / "empty.txt", "");
  write_text(directory / "short.txt", "12345678");
  std::filesystem::create_directories(directory / "folder");
  const std::string good = directory / "good.txt";
  CHECK(common_error(config_for({good}, 3)) == "no error");

  CHECK_THAT(common_error(config_for({good, directory / "none.txt"}, 3)),
             Contains("data: ") && Contains("none.txt") && Contains("No such file") &&
                 Contains("[data.train]"));
  CHECK_THAT(common_error(config_for({good, directory / "empty.txt"}, 3)),
             Contains("empty.txt' is empty"));
  CHECK_THAT(common_error(config_for({directory / "folder"}, 3)), Contains("Is a directory"));
  CHECK_THAT(common_error(config_for({directory / "*.md"}, 3)), Contains("no file matches"));
  CHECK_THAT(common_error(config_for({directory / "short.txt"}, 3)),
             Contains("short.txt") && Contains("8 tokens") && Contains("needs 9"));
  CHECK_THAT(common_error(config_for({}, 3)), Contains("usage: ") && Contains("data.train"));
  Config with_eval = config_for({good}, 3);
  with_eval.data.eval = {directory / "short.txt"};
  CHECK_THAT(common_error(with_eval), Contains("short.txt") && Contains("[data.eval]"));
  // Short files together are long enough.
  CHECK(common_error(config_for({directory / "short.txt", good}, 3)) == "no error");
  CHECK(common_error(config_for({good, good}, 3)) == "no error");
}

TEST_CASE("A file that only some ranks see stops all of them with its name") {
  const TemporaryDirectory directory;
  const std::string path = directory / "text.txt";
  write_text(path, std::string(100, 'a'));
  write_text(path + ".short", std::string(50, 'a'));
  BlindEnv blind(path, false);
  BlindEnv shorter(path, true);
  const Config config = config_for({path}, 3);
  CHECK_THAT(common_error(config, &blind, 1), Contains("not for you") && Contains("rank 1"));
  CHECK_THAT(common_error(config, &blind, 0), Contains("not for you") && !Contains("rank"));
  CHECK_THAT(common_error(config, &shorter, 2),
             Contains("50 bytes here and 100 on rank 0") && Contains("rank 2"));
}

TEST_CASE("Tokens outside the vocabulary are named with file and offset") {
  const TemporaryDirectory directory;
  write_text(directory / "a.txt", std::string(100, 'a'));
  std::string text(5'000'000, 'b');
  text[4'500'000] = static_cast<char>(200);
  text[4'500'001] = static_cast<char>(201);
  write_text(directory / "b.txt", text);
  Config config = config_for({directory / "?.txt"}, 3);
  config.model.vocab_size = 256;
  CHECK(common_error(config) == "no error");
  config.model.vocab_size = 201;
  CHECK_THAT(common_error(config), Contains("b.txt' has token 201 at offset 4500001"));
  config.model.vocab_size = 128;
  CHECK_THAT(common_error(config),
             Contains("b.txt' has token 200 at offset 4500000") && Contains("vocabulary of 128"));
  config.model.vocab_size = 202;
  CHECK(common_error(config) == "no error");
  config.data.train = {directory / "a.txt"};
  config.data.eval = {directory / "b.txt"};
  config.model.vocab_size = 128;
  CHECK_THAT(common_error(config), Contains("b.txt") && Contains("[data.eval]"));
}

TEST_CASE("Options that cannot be met are refused") {
  const TemporaryDirectory directory;
  write_text(directory / "a.txt", std::string(100, 'a'));
  Config config = config_for({directory / "a.txt"}, 3);
  config.trainer.train_batch_size = 4;
  CHECK_THAT(common_error(config), Contains("usage: ") && Contains("train_batch_size 4"));
  config = config_for({directory / "a.txt"}, 3);
  config.model.tokenizer.type = "bpe";
  CHECK_THAT(common_error(config), Contains("usage: ") && Contains("bpe"));
  config = config_for({directory / "a.txt"}, 3);
  config.data.eval_fraction = 1.0;
  CHECK_THAT(common_error(config), Contains("usage: ") && Contains("eval_fraction"));
}

}  // namespace
}  // namespace tessera
