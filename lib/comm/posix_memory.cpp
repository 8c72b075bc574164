#include "comm/posix_memory.hpp"

#include <cerrno>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.hpp"

namespace tessera {

namespace {

class Mapping final : public SharedMemory {
 public:
  Mapping(std::byte* data, std::size_t bytes) : SharedMemory(data, bytes) {}
  ~Mapping() override { munmap(data(), bytes()); }
};

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::shared_ptr<SharedMemory> map(const Descriptor& file, std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (data == MAP_FAILED) {
    fail(ErrorCode::kInternal, "cannot map {} bytes of shared memory: {}", bytes,
         std::strerror(errno));
  }
  return std::make_shared<Mapping>(static_cast<std::byte*>(data), bytes);
}

void reserve(const Descriptor& file, std::size_t bytes) {
  struct statvfs facts {};
  if (fstatvfs(file.number(), &facts) == 0 && facts.f_blocks > 0) {
    const auto available = static_cast<std::uint64_t>(facts.f_bavail) * facts.f_frsize;
    if (available < bytes) {
      fail(ErrorCode::kInternal, "{} bytes of shared memory are needed, {} are free", bytes,
           available);
    }
  }
  const int result = posix_fallocate(file.number(), 0, static_cast<off_t>(bytes));
  if (result != 0) {
    fail(ErrorCode::kInternal, "{} bytes of shared memory are needed: {}", bytes,
         std::strerror(result));
  }
}

}  // namespace

std::shared_ptr<SharedMemory> create_posix_memory(std::size_t bytes, std::string& name) {
  std::random_device random;
  int number = -1;
  do {
    name = fmt::format("/tessera-{}-{:08x}{:08x}", getpid(), random(), random());
    number = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  } while (number < 0 && errno == EEXIST);
  if (number < 0) {
    fail(ErrorCode::kInternal, "cannot create shared memory: {}", std::strerror(errno));
  }
  const Descriptor file(number);
  try {
    reserve(file, bytes);
    return map(file, bytes);
  } catch (...) {
    unlink_posix_memory(name);
    throw;
  }
}

std::shared_ptr<SharedMemory> open_posix_memory(const std::string& name, std::size_t bytes) {
  const Descriptor file(shm_open(name.c_str(), O_RDWR, 0));
  if (file.number() < 0) {
    fail(ErrorCode::kInternal, "cannot open shared memory {}: {}", name, std::strerror(errno));
  }
  struct stat facts {};
  if (fstat(file.number(), &facts) != 0 || static_cast<std::size_t>(facts.st_size) < bytes) {
    fail(ErrorCode::kInternal, "shared memory {} is smaller than {} bytes", name, bytes);
  }
  return map(file, bytes);
}

void unlink_posix_memory(const std::string& name) noexcept { shm_unlink(name.c_str()); }

}  // namespace tessera
