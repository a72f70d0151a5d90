// The ratio of the two loops of probe.h where the code of the second one lies at another place: PAD bytes further, TIMES
// its work in one round of the loop. Prints the median of 200.

#include <algorithm>
#include <array>
#include <cstdio>

#include "probe.h"

using hwbench::keep, hwbench::now_ns, hwbench::Vector;

asm(".text\n.p2align 6\n.skip " PAD "\n");

[[gnu::noinline]] double ratio() {
  constexpr int rounds = 16000;
  const Vector half{0.5F, 0.5F, 0.5F, 0.5F};
  const Vector full = half + half, one = full;
  uint64_t product = 1, factor = 3;
  keep(factor);
  const int64_t start = now_ns();
  for (int i = 0; i < rounds; ++i) {
    product *= factor;
    keep(product);
  }
  const int64_t middle = now_ns();
  Vector a = one, b = one, c = one, d = one, e = one, f = one, g = one, h = one, j = one, k = one, l = one, m = one;
  int64_t p = 0, q = 0, r = 0, s = 0, t = 0, u = 0;
  const auto add = [half](auto&... each) { ((each += half, keep(each)), ...); };
  const auto scale = [full](auto&... each) { ((each *= full, keep(each)), ...); };
  const auto count = [](auto&... each) { ((++each, keep(each)), ...); };
  const auto all = [&]() __attribute__((always_inline)) {
    add(a, b, c), count(p, q, r), scale(d, e, f), count(s, t, u);
    add(g, h, j), count(p, q, r), scale(k, l, m), count(s, t, u);
  };
  for (int i = 0; i < rounds / TIMES; ++i) {
    all();
    if constexpr (TIMES == 16) {
      all(), all(), all(), all(), all(), all(), all();
      all(), all(), all(), all(), all(), all(), all(), all();
    }
  }
  const int64_t end = now_ns();
  return static_cast<double>(end - middle) / static_cast<double>(middle - start);
}

int main() {
  std::array<double, 200> found{};
  for (double& each : found) each = ratio();
  std::nth_element(found.begin(), found.begin() + 100, found.end());
  std::printf("%.3f\n", found[100]);
}
