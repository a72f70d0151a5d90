// How long the clock takes to come back after a model: the chain of probe.h in pieces of about two microseconds, right
// after a millisecond of the model, again and again. Prints the pieces of each time, in nanoseconds.

#include <executorch/extension/threadpool/threadpool_guard.h>
#include <executorch/runtime/platform/runtime.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "machine.h"
#include "model.h"
#include "probe.h"

namespace {

constexpr int kPieces = 32, kSteps = 2000;

[[gnu::noinline]] std::array<int64_t, kPieces> pieces() {
  std::array<int64_t, kPieces> found{};
  uint64_t product = 1, factor = 3;
  hwbench::keep(factor);
  int64_t before = hwbench::now_ns();
  for (int64_t& piece : found) {
    for (int i = 0; i < kSteps; ++i) {
      product *= factor;
      hwbench::keep(product);
    }
    const int64_t now = hwbench::now_ns();
    piece = now - before, before = now;
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  executorch::runtime::runtime_init();
  executorch::extension::threadpool::NoThreadPoolGuard alone;
  hwbench::Model model(argv[1], "", nullptr);
  for (int time = std::atoi(argv[2]); time > 0; --time) {
    for (const int64_t start = hwbench::now_ns(); hwbench::now_ns() - start < 1'000'000;) model.run();
    for (const int64_t piece : pieces()) std::printf("%lld ", static_cast<long long>(piece));
    std::printf("\n");
  }
}
