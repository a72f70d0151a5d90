// Probes of the core and of the memory between samples: what the clock is, and whether others use them.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "machine.h"

namespace hwbench {

// Times of two loops of known work that touch no memory, about 15 to 40 us each on a large core. In `chain` every operation
// waits for the one before, so it takes a number of cycles that depends on the processor alone: its time is the clock.
// `ports` has work for all units at once: it takes half as long again, or twice as long, while another program runs on the
// same core by simultaneous multithreading, which no counter of the operating system shows, least of all to a virtual
// machine. The ratio of the two does not depend on the clock.
struct Probe {
  int64_t chain_ns = 0, ports_ns = 0;
  double crowding() const { return static_cast<double>(ports_ns) / static_cast<double>(chain_ns); }
};

using Vector = float __attribute__((vector_size(16)));

// The value is used, as far as the compiler knows, and lies in a register.
inline void keep(int64_t& value) { asm volatile("" : "+r"(value)); }

inline void keep(uint64_t& value) { asm volatile("" : "+r"(value)); }

inline void keep(Vector& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+m"(value));
#endif
}

// Wide vector instructions lower the clock of some processors, which comes back in steps, within 25 us in half of the cases
// and within 40 us in nine of ten (experiment 013): what is asked for is the clock that all files start from.
constexpr int64_t kSettleNs = 40'000;

// Not inlined: the code is then the same, at the same place, in every probe.
[[gnu::noinline]] inline Probe probe() {
  constexpr int rounds = 8000;
  const Vector half{0.5F, 0.5F, 0.5F, 0.5F};
  const Vector full = half + half, one = full;
  uint64_t product = 1, factor = 3;
  keep(factor);
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i) {
      product *= factor;
      keep(product);
    }
  };
  for (const int64_t asked = now_ns(); now_ns() - asked < kSettleNs;) multiply(rounds / 16);
  const int64_t start = now_ns();
  multiply(2 * rounds);
  const int64_t middle = now_ns();
  // Far more independent work than its latencies hide, so that nothing but the width of the core bounds it.
  Vector a = one, b = one, c = one, d = one, e = one, f = one, g = one, h = one, j = one, k = one, l = one, m = one;
  int64_t p = 0, q = 0, r = 0, s = 0, t = 0, u = 0;
  const auto add = [half](auto&... each) { ((each += half, keep(each)), ...); };
  const auto scale = [full](auto&... each) { ((each *= full, keep(each)), ...); };
  const auto count = [](auto&... each) { ((++each, keep(each)), ...); };
  const auto all = [&]() __attribute__((always_inline)) {
    add(a, b, c), count(p, q, r), scale(d, e, f), count(s, t, u);
    add(g, h, j), count(p, q, r), scale(k, l, m), count(s, t, u);
  };
  // Sixteen times in a row. A loop of two cache lines of code takes a third longer where it lies at some places of them
  // (experiment 013), and where it lies changes with any line of the runner; a long one has a bit of each place.
  for (int i = 0; i < 2 * rounds / 16; ++i) {
    all(), all(), all(), all(), all(), all(), all(), all();
    all(), all(), all(), all(), all(), all(), all(), all();
  }
  const int64_t end = now_ns();
  return {std::max<int64_t>(middle - start, 1), std::max<int64_t>(end - middle, 1)};
}

// Memory that does not fit into the caches of one core, and is swept over: that takes longer while others use the last
// cache and the memory behind it, which they share with us.
class Sweep {
 public:
  // Time of the middle one of five sweeps, each a tenth of a millisecond on a large core.
  int64_t ns() {
    std::array<int64_t, 5> times{};
    pass();  // brings back what was replaced by what ran since
    for (int64_t& time : times) {
      const int64_t start = now_ns();
      pass();
      time = std::max<int64_t>(now_ns() - start, 1);
    }
    std::nth_element(times.begin(), times.begin() + 2, times.end());
    return times[2];
  }

 private:
  static constexpr size_t kBytes = 4 << 20;

  [[gnu::noinline]] void pass() {
    const Vector one{1, 1, 1, 1};
    for (Vector& each : memory_) each += one;
    asm volatile("" : : "r"(memory_.data()) : "memory");
  }

  std::vector<Vector> memory_{kBytes / sizeof(Vector)};
};

// Knows how crowded an undisturbed core is: the lowest crowding that was seen often. Before it knows, all is quiet.
class Watch {
 public:
  // `quiet_ppm`: the crowding of an undisturbed core where that is known already, in millionths; else 0.
  // `memory_ppm`: likewise, what memory that nothing else uses takes.
  Watch(uint64_t quiet_ppm, uint64_t memory_ppm) : free_(static_cast<double>(memory_ppm) / 1e6) {
    if (quiet_ppm != 0) known_ = bin(static_cast<double>(quiet_ppm) / 1e6);
  }

  // Time spent measuring, waiting for core or memory, and waiting for memory.
  double measured_ms = 0, waited_ms = 0, waited_memory_ms = 0;

  // What a sweep over memory takes, in terms of the chain; of a crowded core it tells nothing: 0.
  double memory() {
    const Probe before = look();
    const int64_t swept = sweep_.ns();
    const Probe after = look();
    if (!quiet(before) || !quiet(after)) return 0;
    return 2 * static_cast<double>(swept) / static_cast<double>(before.chain_ns + after.chain_ns);
  }

  // The memory is about as fast as when nothing else uses it.
  bool free(double memory) const { return memory > 0 && (free_ == 0 || memory <= (1 + kMemoryTolerance) * free_); }

  Probe look() { return note(probe()); }

  // Learns from one more probe, which it gives back.
  Probe note(const Probe& seen) {
    ++seen_[static_cast<size_t>(bin(seen.crowding()))];
    ++looks_;
    // Anew every time: what was often at first, of one file, may turn out to be rare.
    const auto often = [this](int times) { return times >= kOften && times >= kShare * looks_; };
    lowest_ = static_cast<int>(std::find_if(seen_.begin(), seen_.end(), often) - seen_.begin());
    lowest_ = std::min(lowest_, known_);
    return seen;
  }

  // About as crowded as an undisturbed core; less says that the first loop was interrupted.
  bool quiet(const Probe& seen) const {
    if (lowest_ == kBins) return true;
    const double usual = std::exp((lowest_ - kBins / 2) * std::log1p(kStep));
    return std::abs(seen.crowding() / usual - 1) <= kQuiet;
  }

 private:
  // Seen often is: by a twentieth of the probes. Fewer are interrupted in their first loop, and seem less crowded.
  static constexpr double kShare = 0.05;
  // As in drift.py: less than what another program does, and more than what an undisturbed core varies by.
  static constexpr double kQuiet = 0.12;
  // As in drift.py: on a shared server a sweep may take twice as long within a second, which rows hardly notice.
  static constexpr double kMemoryTolerance = 1.5;
  static constexpr int kBins = 400, kOften = 16;
  static constexpr double kStep = 0.02;

  static int bin(double crowding) {
    const auto steps = static_cast<int>(std::lround(std::log(crowding) / std::log1p(kStep)));
    return std::clamp(steps + kBins / 2, 0, kBins - 1);
  }

  std::array<int, kBins> seen_{};
  int known_ = kBins, lowest_ = kBins, looks_ = 0;
  double free_;
  Sweep sweep_;
};

}  // namespace hwbench
