// Sleeping on a word of memory, between the threads of one process or of several.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera {

/// Sleeps while `word` is `expected`, for at most `limit`. May wake early.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds limit);
/// Wakes all sleepers on `word`, in every process that maps it.
void futex_wake_all(const std::atomic<std::uint32_t>& word);

/// Tells the core that this is a spinning wait.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tessera
