// An Env for tests: passes everything on to another Env, records what changes files, and makes
// chosen operations fail the way a full or broken disk does.
#pragma once

#include <tessera/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/env.hpp"

namespace tessera::testing {

/// The kinds of operation that can be recorded and failed.
enum class FileOperation { kOpen, kWrite, kSync, kClose, kRename, kSyncDirectory, kRemove, kMake };

/// One operation that was asked for.
struct FileRecord {
  FileOperation operation;
  std::string path;    ///< a rename's source
  std::string target;  ///< of a rename
  std::uint64_t bytes = 0;
};

/// May be used by several threads (ranks) at once.
class FaultyEnv final : public Env {
 public:
  explicit FaultyEnv(Env& base) : base_(base) {}

  /// The `nth` (0 = the next) `operation` on a path that contains `path_part` fails with `error`
  /// (ENOSPC, EIO …). A write first lets `torn_bytes` bytes through. Only that one, unless
  /// `forever`.
  void fail_nth(FileOperation operation, int nth, int error, std::string path_part = {},
                std::uint64_t torn_bytes = 0, bool forever = false) {
    const std::lock_guard lock(mutex_);
    faults_.push_back({operation, nth, error, std::move(path_part), torn_bytes, forever});
  }
  /// From the `nth` (0 = the next) operation on, all fail: the process has died there.
  void fail_all_from(int nth) {
    const std::lock_guard lock(mutex_);
    alive_ = nth;
  }
  /// What free_bytes() answers from now on.
  void set_free_bytes(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    free_bytes_ = bytes;
    free_bytes_set_ = true;
  }
  /// Called after every recorded operation that was let through, on the calling thread.
  void set_observer(std::function<void(const FileRecord&)> observer) {
    observer_ = std::move(observer);
  }
  std::vector<FileRecord> records() const {
    const std::lock_guard lock(mutex_);
    return records_;
  }
  /// Bytes read so far through files opened here.
  std::uint64_t bytes_read() const {
    const std::lock_guard lock(mutex_);
    return bytes_read_;
  }
  /// Forgets the records and the faults not yet used up.
  void clear() {
    const std::lock_guard lock(mutex_);
    records_.clear();
    faults_.clear();
    alive_ = -1;
    bytes_read_ = 0;
    free_bytes_set_ = false;
  }

  std::unique_ptr<RandomAccessFile> open_for_read(const std::string& path) override {
    return std::make_unique<CountingFile>(*this, base_.open_for_read(path));
  }
  std::unique_ptr<WritableFile> open_for_write(const std::string& path, OpenMode mode) override {
    check({FileOperation::kOpen, path, {}, 0});
    return std::make_unique<FaultyFile>(*this, path, base_.open_for_write(path, mode));
  }
  bool exists(const std::string& path) override { return base_.exists(path); }
  bool is_directory(const std::string& path) override { return base_.is_directory(path); }
  std::uint64_t file_size(const std::string& path) override { return base_.file_size(path); }
  std::vector<std::string> list_directory(const std::string& path) override {
    return base_.list_directory(path);
  }
  void make_directories(const std::string& path) override {
    check({FileOperation::kMake, path, {}, 0});
    base_.make_directories(path);
  }
  void sync_directory(const std::string& path) override {
    check({FileOperation::kSyncDirectory, path, {}, 0});
    base_.sync_directory(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    check({FileOperation::kRename, from, to, 0});
    base_.rename(from, to);
  }
  void truncate(const std::string& path, std::uint64_t size) override {
    base_.truncate(path, size);
  }
  void remove_file(const std::string& path) override {
    check({FileOperation::kRemove, path, {}, 0});
    base_.remove_file(path);
  }
  void remove_tree(const std::string& path) override {
    check({FileOperation::kRemove, path, {}, 0});
    base_.remove_tree(path);
  }
  std::uint64_t free_bytes(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    return free_bytes_set_ ? free_bytes_ : base_.free_bytes(path);
  }

 private:
  struct Fault {
    FileOperation operation;
    int nth;
    int error;
    std::string path_part;
    std::uint64_t torn_bytes;
    bool forever;
  };

  class CountingFile final : public RandomAccessFile {
   public:
    CountingFile(FaultyEnv& env, std::unique_ptr<RandomAccessFile> base)
        : env_(env), base_(std::move(base)) {}
    void read(std::uint64_t offset, std::span<std::byte> destination) const override {
      base_->read(offset, destination);
      const std::lock_guard lock(env_.mutex_);
      env_.bytes_read_ += destination.size();
    }
    std::uint64_t size() const override { return base_->size(); }
    const std::string& path() const override { return base_->path(); }

   private:
    FaultyEnv& env_;
    std::unique_ptr<RandomAccessFile> base_;
  };

  class FaultyFile final : public WritableFile {
   public:
    FaultyFile(FaultyEnv& env, std::string path, std::unique_ptr<WritableFile> base)
        : env_(env), path_(std::move(path)), base_(std::move(base)) {}
    void append(std::span<const std::byte> data) override {
      std::uint64_t torn = 0;
      try {
        env_.check({FileOperation::kWrite, path_, {}, data.size()}, &torn);
      } catch (...) {
        base_->append(data.first(std::min<std::size_t>(torn, data.size())));
        throw;
      }
      base_->append(data);
    }
    void sync() override {
      env_.check({FileOperation::kSync, path_, {}, 0});
      base_->sync();
    }
    void close() override {
      env_.check({FileOperation::kClose, path_, {}, 0});
      base_->close();
    }
    std::uint64_t size() const override { return base_->size(); }

   private:
    FaultyEnv& env_;
    std::string path_;
    std::unique_ptr<WritableFile> base_;
  };

  // Records the operation; raises as Env::posix() would where a fault was asked for.
  void check(FileRecord record, std::uint64_t* torn = nullptr) {
    {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
      if (alive_ == 0) throw Error(ErrorCode::kData, "the process has died");
      if (alive_ > 0) --alive_;
      for (Fault& fault : faults_) {
        if (fault.operation != record.operation) continue;
        if (record.path.find(fault.path_part) == std::string::npos &&
            record.target.find(fault.path_part) == std::string::npos) {
          continue;
        }
        const int turn = fault.nth--;
        if (turn > 0 || (turn < 0 && !fault.forever)) continue;
        if (torn != nullptr) *torn = fault.torn_bytes;
        throw Error(ErrorCode::kData,
                    "cannot change '" + record.path +
                        "': " + std::error_code(fault.error, std::generic_category()).message());
      }
    }
    if (observer_) observer_(record);
  }

  Env& base_;
  mutable std::mutex mutex_;
  std::vector<Fault> faults_;
  std::vector<FileRecord> records_;
  std::function<void(const FileRecord&)> observer_;
  int alive_ = -1;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t bytes_read_ = 0;
  bool free_bytes_set_ = false;
};

}  // namespace tessera::testing
