// The operating system's files behind Env: contents, modes, and errors that name path and reason.
#include "base/env.hpp"

#include <tessera/error.hpp>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "support/faulty_env.hpp"
#include "support/temporary_directory.hpp"

namespace tessera {
namespace {

using testing::FaultyEnv;
using testing::FileOperation;
using testing::TemporaryDirectory;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void write_text(Env& env, const std::string& path, std::string_view text, OpenMode mode) {
  const auto file = env.open_for_write(path, mode);
  file->append(bytes_of(text));
  file->sync();
  file->close();
}

// The error's message; fails the test when the code is not kData.
template <typename F>
std::string data_error(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kData);
    return error.what();
  }
  return "no error";
}

TEST_CASE("Env writes and reads files in every mode") {
  Env& env = Env::posix();
  const TemporaryDirectory directory;
  const std::string path = directory / "a.txt";

  write_text(env, path, "hello", OpenMode::kExclusive);
  CHECK(env.read_file(path) == "hello");
  write_text(env, path, " world", OpenMode::kAppend);
  CHECK(env.read_file(path) == "hello world");
  CHECK(env.file_size(path) == 11);
  CHECK(env.open_for_write(path, OpenMode::kAppend)->size() == 11);

  const auto reader = env.open_for_read(path);
  std::string part(5, '?');
  reader->read(6, std::as_writable_bytes(std::span(part.data(), part.size())));
  CHECK(part == "world");

  env.truncate(path, 3);
  CHECK(env.read_file(path) == "hel");
  write_text(env, path, "x", OpenMode::kTruncate);
  CHECK(env.read_file(path) == "x");
}

TEST_CASE("Env errors name the path and the reason") {
  Env& env = Env::posix();
  const TemporaryDirectory directory;
  const std::string path = directory / "a.txt";
  write_text(env, path, "0123456789", OpenMode::kTruncate);

  using Catch::Contains;
  const std::string missing = directory / "none";
  CHECK_THAT(data_error([&] { env.open_for_read(missing); }),
             Contains(missing) && Contains("No such file"));
  CHECK_THAT(data_error([&] { env.open_for_write(path, OpenMode::kExclusive); }),
             Contains(path) && Contains("File exists"));
  CHECK_THAT(data_error([&] { env.open_for_read(directory.path()); }), Contains("Is a directory"));
  CHECK_THAT(data_error([&] { env.file_size(directory.path()); }), Contains("Is a directory"));
  CHECK_THAT(data_error([&] { env.list_directory(missing); }), Contains(missing));
  CHECK_THAT(data_error([&] { env.remove_file(missing); }), Contains(missing));
  CHECK_THAT(data_error([&] { env.rename(missing, path); }), Contains(missing) && Contains(path));
  CHECK_THAT(data_error([&] { env.make_directories(path); }), Contains(path));
  CHECK_THAT(data_error([&] { env.sync_directory(missing); }), Contains(missing));
  CHECK_THAT(data_error([&] { env.free_bytes(missing); }), Contains(missing));
  CHECK_THAT(data_error([&] { env.read_file(path, 9); }), Contains("10 bytes"));
  CHECK_THAT(data_error([&] {
               std::vector<std::byte> buffer(4);
               env.open_for_read(path)->read(8, buffer);
             }),
             Contains("ends at byte 10"));
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(data_error([&] { env.open_for_read(pipe); }), Contains("Not a regular file"));
}

TEST_CASE("Env reports a full device") {
  if (::access("/dev/full", W_OK) != 0) {
    WARN("skipped: no /dev/full");
    return;
  }
  const auto file = Env::posix().open_for_write("/dev/full", OpenMode::kAppend);
  CHECK_THAT(data_error([&] { file->append(bytes_of("x")); }), Catch::Contains("No space left"));
  // The failure is final: nothing pretends afterwards that the content is safe.
  CHECK_THAT(data_error([&] { file->sync(); }), Catch::Contains("No space left"));
}

TEST_CASE("Env works on directories") {
  Env& env = Env::posix();
  const TemporaryDirectory directory;
  const std::string deep = directory / "x/y/z";
  env.make_directories(deep);
  env.make_directories(deep);
  CHECK(env.is_directory(deep));
  CHECK_FALSE(env.is_directory(deep + "/none"));
  write_text(env, deep + "/b", "", OpenMode::kTruncate);
  write_text(env, deep + "/a", "", OpenMode::kTruncate);
  CHECK(env.list_directory(deep) == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(env.exists(deep + "/a/under_a_file"));
  env.sync_directory(deep);
  env.rename(deep + "/a", deep + "/c");
  env.remove_file(deep + "/b");
  CHECK(env.list_directory(deep) == std::vector<std::string>{"c"});
  CHECK(env.free_bytes(deep) > 0);
  env.remove_tree(directory / "x");
  env.remove_tree(directory / "x");
  CHECK_FALSE(env.exists(deep));
}

TEST_CASE("An atomic write leaves the old or the new content") {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  FaultyEnv env(Env::posix());
  env.write_file_atomically(path, "old");
  const std::size_t steps = env.records().size();
  REQUIRE(steps == 6);  // open, write, sync, close, rename, directory sync

  const FileOperation operations[] = {FileOperation::kOpen,   FileOperation::kWrite,
                                      FileOperation::kSync,   FileOperation::kClose,
                                      FileOperation::kRename, FileOperation::kSyncDirectory};
  for (const FileOperation operation : operations) {
    env.clear();
    env.fail_nth(operation, 0, EIO, {}, 1);
    CHECK_THAT(data_error([&] { env.write_file_atomically(path, "new!"); }),
               Catch::Contains("Input/output error"));
    const std::string content = env.read_file(path);
    CHECK(content == (operation == FileOperation::kSyncDirectory ? "new!" : "old"));
  }
  env.clear();
  env.write_file_atomically(path, "after");
  CHECK(env.read_file(path) == "after");
}

TEST_CASE("A rename whose reply was lost is not an error") {
  class LostReply final : public Env {
   public:
    std::unique_ptr<RandomAccessFile> open_for_read(const std::string& p) override {
      return base.open_for_read(p);
    }
    std::unique_ptr<WritableFile> open_for_write(const std::string& p, OpenMode m) override {
      return base.open_for_write(p, m);
    }
    bool exists(const std::string& p) override { return base.exists(p); }
    bool is_directory(const std::string& p) override { return base.is_directory(p); }
    std::uint64_t file_size(const std::string& p) override { return base.file_size(p); }
    std::vector<std::string> list_directory(const std::string& p) override {
      return base.list_directory(p);
    }
    void make_directories(const std::string& p) override { base.make_directories(p); }
    void sync_directory(const std::string& p) override { base.sync_directory(p); }
    void rename(const std::string& from, const std::string& to) override {
      base.rename(from, to);
      throw Error(ErrorCode::kData, "no such file");
    }
    void truncate(const std::string& p, std::uint64_t s) override { base.truncate(p, s); }
    void remove_file(const std::string& p) override { base.remove_file(p); }
    void remove_tree(const std::string& p) override { base.remove_tree(p); }
    std::uint64_t free_bytes(const std::string& p) override { return base.free_bytes(p); }
    Env& base = Env::posix();
  };
  LostReply env;
  const TemporaryDirectory directory;
  env.write_file_atomically(directory / "file", "content");
  CHECK(env.read_file(directory / "file") == "content");
}

TEST_CASE("Paths are joined and cut as text") {
  CHECK(join_path("a", "b") == "a/b");
  CHECK(join_path("a/", "b") == "a/b");
  CHECK(join_path("a", "/b") == "/b");
  CHECK(join_path("", "b") == "b");
  CHECK(parent_path("a/b") == "a");
  CHECK(parent_path("a/b/") == "a");
  CHECK(parent_path("b") == ".");
  CHECK(parent_path("/b") == "/");
  CHECK(parent_path("a//b") == "a");
}

}  // namespace
}  // namespace tessera
