// Env over the operating system's calls.
#include <tessera/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/env.hpp"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// Linux moves at most 2 GiB a call; smaller calls keep signals from waiting long.
constexpr std::size_t kMaxBytesPerCall = std::size_t{1} << 28;

[[noreturn]] void fail_system(std::string_view what, std::string_view path, int error) {
  fail(ErrorCode::kData, "cannot {} '{}': {}", what, path,
       std::error_code(error, std::generic_category()).message());
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int open_retrying(const std::string& path, int flags, std::string_view what) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_system(what, path, errno);
  return fd;
}

void sync_descriptor(int fd, std::string_view what, const std::string& path) {
  int result;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail_system(what, path, errno);
}

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(int fd, std::uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}

  void read(std::uint64_t offset, std::span<std::byte> destination) const override {
    std::size_t done = 0;
    while (done < destination.size()) {
      const std::size_t count = std::min(destination.size() - done, kMaxBytesPerCall);
      const ssize_t got =
          ::pread(fd_.get(), destination.data() + done, count, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_system("read", path_, errno);
      if (got == 0) {
        fail(ErrorCode::kData, "cannot read '{}': it ends at byte {}, {} bytes at {} were wanted",
             path_, offset + done, destination.size(), offset);
      }
      done += static_cast<std::size_t>(got);
    }
  }
  std::uint64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  Descriptor fd_;
  std::uint64_t size_;
  std::string path_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}

  void append(std::span<const std::byte> data) override {
    check_usable("write");
    std::size_t done = 0;
    while (done < data.size()) {
      const std::size_t count = std::min(data.size() - done, kMaxBytesPerCall);
      const ssize_t put = ::write(fd_.get(), data.data() + done, count);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) {
        failed_ = put < 0 ? errno : ENOSPC;
        fail_system("write", path_, failed_);
      }
      done += static_cast<std::size_t>(put);
      size_ += static_cast<std::uint64_t>(put);
    }
  }

  void sync() override {
    check_usable("flush");
    try {
      sync_descriptor(fd_.get(), "flush", path_);
    } catch (const Error&) {
      // The kernel drops the dirty pages after reporting once: a second fsync would lie.
      failed_ = EIO;
      throw;
    }
  }

  void close() override {
    check_usable("close");
    // On Linux the descriptor is gone whatever close() returns, EINTR included.
    if (::close(fd_.release()) != 0 && errno != EINTR) fail_system("close", path_, errno);
  }

  std::uint64_t size() const override { return size_; }

 private:
  void check_usable(std::string_view what) const {
    if (failed_ != 0) fail_system(what, path_, failed_);
    TESSERA_CHECK(fd_.get() >= 0, "'{}' is used after close", path_);
  }

  Descriptor fd_;
  std::uint64_t size_;
  std::string path_;
  int failed_ = 0;
};

class PosixEnv final : public Env {
 public:
  std::unique_ptr<RandomAccessFile> open_for_read(const std::string& path) override {
    // Non-blocking, so that a named pipe is refused below instead of waited for.
    Descriptor fd(open_retrying(path, O_RDONLY | O_NONBLOCK, "open"));
    struct stat status;
    if (::fstat(fd.get(), &status) != 0) fail_system("open", path, errno);
    if (S_ISDIR(status.st_mode)) fail_system("open", path, EISDIR);
    if (!S_ISREG(status.st_mode)) {
      fail(ErrorCode::kData, "cannot open '{}': Not a regular file", path);
    }
    const auto size = static_cast<std::uint64_t>(status.st_size);
    return std::make_unique<PosixRandomAccessFile>(fd.release(), size, path);
  }

  std::unique_ptr<WritableFile> open_for_write(const std::string& path, OpenMode mode) override {
    int flags = O_WRONLY | O_CREAT;
    if (mode == OpenMode::kExclusive) flags |= O_EXCL;
    if (mode == OpenMode::kTruncate) flags |= O_TRUNC;
    if (mode == OpenMode::kAppend) flags |= O_APPEND;
    Descriptor fd(open_retrying(path, flags, mode == OpenMode::kAppend ? "open" : "create"));
    struct stat status;
    if (::fstat(fd.get(), &status) != 0) fail_system("open", path, errno);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    return std::make_unique<PosixWritableFile>(fd.release(), size, path);
  }

  bool exists(const std::string& path) override {
    struct stat status;
    return look_up(path, status);
  }

  bool is_directory(const std::string& path) override {
    struct stat status;
    return look_up(path, status) && S_ISDIR(status.st_mode);
  }

  std::uint64_t file_size(const std::string& path) override {
    struct stat status;
    if (!look_up(path, status)) fail_system("open", path, ENOENT);
    if (S_ISDIR(status.st_mode)) fail_system("open", path, EISDIR);
    return static_cast<std::uint64_t>(status.st_size);
  }

  std::vector<std::string> list_directory(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    fs::directory_iterator entry(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) fail_system("list", path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  void make_directories(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail_system("make the directory", path, error.value());
    if (!is_directory(path)) fail_system("make the directory", path, ENOTDIR);
  }

  void sync_directory(const std::string& path) override {
    const Descriptor fd(open_retrying(path, O_RDONLY | O_DIRECTORY, "open"));
    int result;
    do {
      result = ::fsync(fd.get());
    } while (result != 0 && errno == EINTR);
    // EINVAL: a file system that has no directory flush.
    if (result != 0 && errno != EINVAL) fail_system("flush the directory", path, errno);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      fail_system(fmt::format("rename '{}' to", from), to, errno);
    }
  }

  void truncate(const std::string& path, std::uint64_t size) override {
    int result;
    do {
      result = ::truncate(path.c_str(), static_cast<off_t>(size));
    } while (result != 0 && errno == EINTR);
    if (result != 0) fail_system("truncate", path, errno);
  }

  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail_system("remove", path, errno);
  }

  void remove_tree(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail_system("remove", path, error.value());
  }

  std::uint64_t free_bytes(const std::string& path) override {
    struct statvfs status;
    int result;
    do {
      result = ::statvfs(path.c_str(), &status);
    } while (result != 0 && errno == EINTR);
    if (result != 0) fail_system("ask for the free space of", path, errno);
    return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  }

 private:
  // False where there is nothing; other reasons, such as a folder that may not be searched, raise.
  static bool look_up(const std::string& path, struct stat& status) {
    if (::stat(path.c_str(), &status) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail_system("look up", path, errno);
  }
};

}  // namespace

Env& Env::posix() {
  static PosixEnv env;
  return env;
}

}  // namespace tessera
