// An Env for tests in which some files have another content than on disk.
#pragma once

#include <tessera/error.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.hpp"

namespace tessera::testing {

/// Reads files of another Env, but for those that were replaced. For one thread; does not write.
class OverlayEnv final : public Env {
 public:
  explicit OverlayEnv(Env& base) : base_(base) {}

  void replace(const std::string& path, std::string content) { files_[path] = std::move(content); }
  void restore(const std::string& path) { files_.erase(path); }

  std::unique_ptr<RandomAccessFile> open_for_read(const std::string& path) override {
    const auto found = files_.find(path);
    if (found == files_.end()) return base_.open_for_read(path);
    return std::make_unique<MemoryFile>(path, found->second);
  }
  bool exists(const std::string& path) override {
    return files_.contains(path) || base_.exists(path);
  }
  bool is_directory(const std::string& path) override { return base_.is_directory(path); }
  std::uint64_t file_size(const std::string& path) override {
    const auto found = files_.find(path);
    return found == files_.end() ? base_.file_size(path) : found->second.size();
  }
  std::vector<std::string> list_directory(const std::string& path) override {
    return base_.list_directory(path);
  }
  std::unique_ptr<WritableFile> open_for_write(const std::string& path, OpenMode) override {
    refuse(path);
  }
  void make_directories(const std::string& path) override { refuse(path); }
  void sync_directory(const std::string& path) override { refuse(path); }
  void rename(const std::string& from, const std::string&) override { refuse(from); }
  void truncate(const std::string& path, std::uint64_t) override { refuse(path); }
  void remove_file(const std::string& path) override { refuse(path); }
  void remove_tree(const std::string& path) override { refuse(path); }
  std::uint64_t free_bytes(const std::string& path) override { return base_.free_bytes(path); }

 private:
  class MemoryFile final : public RandomAccessFile {
   public:
    MemoryFile(std::string path, const std::string& content)
        : path_(std::move(path)), content_(content) {}
    void read(std::uint64_t offset, std::span<std::byte> destination) const override {
      if (offset > content_.size() || destination.size() > content_.size() - offset) {
        throw Error(ErrorCode::kData, "'" + path_ + "' is too short");
      }
      if (!destination.empty()) {
        std::memcpy(destination.data(), content_.data() + offset, destination.size());
      }
    }
    std::uint64_t size() const override { return content_.size(); }
    const std::string& path() const override { return path_; }

   private:
    std::string path_;
    const std::string& content_;
  };

  [[noreturn]] static void refuse(const std::string& path) {
    throw Error(ErrorCode::kData, "'" + path + "' cannot be changed here");
  }

  Env& base_;
  std::map<std::string, std::string> files_;
};

}  // namespace tessera::testing
