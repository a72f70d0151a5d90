// Runs many .pte files in one process and times them.
// Contract of arguments and answers: hwbench/runtimes/protocol.py.
//
// Every round visits the files in fresh random order; a visit is warm-up, then samples back to back. One JSON object
// per line goes to stdout, flushed, so that whoever listens loses at most the visit in progress. A file that cannot be
// loaded or run is reported and left out from then on; the others go on.

#include <executorch/extension/threadpool/threadpool_guard.h>
#include <executorch/runtime/platform/runtime.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "machine.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "probe.h"
#include "tracer.h"

// The wheel ships the thread pool without its header; these are the members we call, as its library exports them.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t num_threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace threadpool = executorch::extension::threadpool;

namespace hwbench {
namespace {

template <typename T>
T median(std::vector<T> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// So many copies are together at least twice as large as the last cache; the limits as in python_runner.py.
size_t num_copies(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto bytes = std::max<size_t>(static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 1)), 1);
  return std::min<size_t>(std::max<size_t>((2 * last_cache_bytes() + bytes - 1) / bytes, 2), 32);
}

// A model in the state of the caches that was asked for.
class Timed {
 public:
  Timed(Model& model, const std::string& path, const Options& o) : models_{&model}, flush_(o.cache == "flush") {
    if (o.cache != "rotate") return;
    for (size_t copy = 1, copies = num_copies(path); copy < copies; ++copy) {
      models_.push_back(owned_.emplace_back(std::make_unique<Model>(path, nullptr)).get());
      models_.back()->make_inputs("");
    }
  }

  int64_t run() {
    if (flush_) flush_caches();
    Model* model = models_[next_];
    next_ = next_ + 1 == models_.size() ? 0 : next_ + 1;
    return model->run();
  }

 private:
  std::vector<std::unique_ptr<Model>> owned_;
  std::vector<Model*> models_;
  size_t next_ = 0;
  bool flush_;
};

// The last five executions are as fast as the five before, to 2 %.
bool stable(const std::vector<int64_t>& runs) {
  if (runs.size() < 10) return false;
  int64_t before = median<int64_t>({runs.end() - 10, runs.end() - 5}), after = median<int64_t>({runs.end() - 5, runs.end()});
  return std::abs(after - before) <= before / 50;
}

// At least the time asked for, then until the executions are stable, at most four times as long.
void warm_up(Timed& model, double warm_ms) {
  std::vector<int64_t> runs;
  const int64_t start = now_ns();
  for (double ms = 0; ms < 4 * warm_ms && (ms < warm_ms || !stable(runs));) {
    runs.push_back(model.run());
    ms = static_cast<double>(now_ns() - start) / 1e6;
  }
}

// What was taken in one visit.
struct Samples {
  std::vector<int64_t> ns, chains_ns;
  std::vector<double> crowding;
  int64_t cpu_ns = 0, wall_ns = 0, nivcsw = 0, majflt = 0;

  double ms() const { return static_cast<double>(wall_ns) / 1e6; }

  void add(const Samples& more) {
    ns.insert(ns.end(), more.ns.begin(), more.ns.end());
    chains_ns.insert(chains_ns.end(), more.chains_ns.begin(), more.chains_ns.end());
    crowding.insert(crowding.end(), more.crowding.begin(), more.crowding.end());
    cpu_ns += more.cpu_ns, wall_ns += more.wall_ns, nivcsw += more.nivcsw, majflt += more.majflt;
  }

  bool enough(const Options& o) const {
    return !ns.empty() && (ms() >= o.max_ms || (ns.size() >= o.min_samples && ms() >= o.min_ms));
  }
};

// Executions back to back until `done` says so.
template <typename Done>
Samples execute(Timed& model, Done done) {
  Samples taken;
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const int64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
  do {
    taken.ns.push_back(model.run());
    taken.wall_ns = now_ns() - start;
  } while (!done(taken));
  taken.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  getrusage(RUSAGE_SELF, &after);
  taken.nivcsw = after.ru_nivcsw - before.ru_nivcsw;
  taken.majflt = after.ru_majflt - before.ru_majflt;
  return taken;
}

// So long are executions grouped between two probes, which then cost a fifteenth of the time.
constexpr double kGroupMs = 1.0;
// Waiting for a quiet core takes at most so many times `max_ms` in one visit; in all visits, beyond the first seconds,
// so many times as long as they measured: a core that is shared all the time does not get quiet.
constexpr double kPatience = 2, kCoreShare = 8, kFirstMs = 5000;
// Waiting for memory takes at most so long in one visit, and in all visits no longer than they did: it may be in use for
// hours.
constexpr double kMemoryPatienceMs = 500;

// Waits until nothing else uses the memory, or too long, for which the core must be quiet: `patience_ms` is how long
// that may take. Returns what the last sweep over memory took; `waited_ms` is how long was waited.
double wait_for_memory(Watch& watch, double patience_ms, double& waited_ms) {
  const double memory_ms = watch.waited_memory_ms <= watch.measured_ms ? kMemoryPatienceMs : 0;
  for (const int64_t start = now_ns();;) {
    const double memory = watch.memory();
    waited_ms = static_cast<double>(now_ns() - start) / 1e6;
    if (!watch.free(memory) && waited_ms <= (memory == 0 ? patience_ms : memory_ms)) continue;
    if (memory != 0) watch.waited_memory_ms += waited_ms;
    return memory;
  }
}

// Samples with a quiet core before and after them, as many as are enough; all there are where these would take longer
// than `patience_ms`. `waited_ms` grows by the time that gave none.
Samples sample_when_quiet(Timed& model, const Options& o, Watch& watch, double patience_ms, double& waited_ms,
                          size_t& disturbed) {
  Samples quiet, rest;
  Probe before = watch.look();
  const int64_t start = now_ns();
  const auto lost_ms = [&] { return waited_ms + static_cast<double>(now_ns() - start) / 1e6 - quiet.ms(); };
  while (!quiet.enough(o)) {
    const bool patient = lost_ms() <= patience_ms;
    if (!patient && rest.enough(o)) break;
    if (patient && !watch.quiet(before)) {
      before = watch.look();
      continue;
    }
    Samples group = execute(model, [](const Samples& taken) { return taken.ms() >= kGroupMs; });
    const Probe after = watch.look();
    group.chains_ns = {(before.chain_ns + after.chain_ns) / 2};
    group.crowding = {std::max(before.crowding(), after.crowding())};
    (watch.quiet(before) && watch.quiet(after) ? quiet : rest).add(group);
    before = after;
  }
  waited_ms = lost_ms();
  disturbed = rest.ns.size();
  if (quiet.ns.size() < std::min<size_t>(o.min_samples, 3)) quiet.add(rest);
  return quiet;
}

void time_session(Timed& model, const char* kind, const std::string& id, uint64_t round, const Options& o, Watch& watch) {
  const double left_ms = kFirstMs + kCoreShare * watch.measured_ms - watch.waited_ms;
  const double patience_ms = std::clamp(left_ms, 0.0, kPatience * o.max_ms);
  double waited_ms = 0, memory = o.probe ? wait_for_memory(watch, patience_ms, waited_ms) : 0;
  warm_up(model, o.warm_ms);
  const int64_t start = now_ns();
  size_t disturbed = 0;
  Samples taken = o.probe ? sample_when_quiet(model, o, watch, patience_ms, waited_ms, disturbed)
                          : execute(model, [&](const Samples& so_far) { return so_far.enough(o); });
  const int64_t end = now_ns();
  if (o.probe) memory = std::max(memory, watch.memory());
  watch.measured_ms += taken.ms();
  watch.waited_ms += waited_ms;
  Line line(kind);
  line.text("id", id)
      .integer("round", static_cast<int64_t>(round))
      .integers("samples_ns", taken.ns)
      .integer("cpu_ns", taken.cpu_ns)
      .integer("wall_ns", taken.wall_ns)
      .integer("nivcsw", taken.nivcsw)
      .integer("majflt", taken.majflt)
      .integer("maxrss_kb", peak_memory_kb())
      .integer("clock_khz", clock_khz())
      .integer("temp_mc", temperature_mc())
      .integer("at_ns", start + (end - start) / 2);
  if (o.probe) {
    line.integer("probe_ns", median(taken.chains_ns))
        .integer("crowding_ppm", static_cast<int64_t>(1e6 * median(taken.crowding)))
        .integer("memory_ppm", static_cast<int64_t>(1e6 * memory))
        .integer("disturbed", static_cast<int64_t>(disturbed));
  }
  line.write();
}

// Mean of the middle half: robust, and finer than the microsecond in which XNNPACK reports.
double middle_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  auto skip = static_cast<std::ptrdiff_t>(values.size() / 4);
  auto first = values.begin() + skip, last = values.end() - skip;
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

void time_operations(Timed& model, Tracer& tracer, const std::string& id, const Options& o) {
  tracer.clear();
  auto samples = execute(model, [&](const Samples& so_far) { return so_far.enough(o); }).ns;
  if (!tracer.consistent()) throw Failure("run", "the operations changed between two executions");
  std::string ops;
  for (const auto& event : tracer.events()) {
    if (event.ns.empty()) continue;
    char tail[64];
    std::snprintf(tail, sizeof tail, ",%.1f,%zu]", middle_mean(event.ns), event.ns.size());
    ops += (ops.empty() ? "[" : ",[") + Line::quoted(event.name) + tail;
  }
  Line("ops").text("id", id).integer("total_ns", median(samples)).raw("ops", "[" + ops + "]").write();
}

struct Entry {
  std::string id, path;
  uint64_t visits = 0;
  std::unique_ptr<Tracer> tracer;
  std::unique_ptr<Model> model;
  std::unique_ptr<Timed> timed;
  bool failed = false, stays = false;  // `stays`: loaded between its visits
};

// Lines `id<TAB>path` or `id<TAB>path<TAB>visits`.
std::vector<Entry> read_list(const Options& o) {
  std::ifstream file(o.list);
  if (!file) usage("--list: cannot read " + o.list);
  std::vector<Entry> entries;
  for (std::string line; std::getline(file, line);) {
    size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == std::string::npos) usage("--list: no tab in line " + line);
    Entry& entry = entries.emplace_back();
    entry.id = line.substr(0, first);
    entry.path = line.substr(first + 1, second == std::string::npos ? second : second - first - 1);
    entry.visits = second == std::string::npos ? o.rounds : number<uint64_t>("--list", line.substr(second + 1));
  }
  return entries;
}

// Loads the file unless it stayed loaded. The line `begin` comes before it is touched, so that a crash has a name.
void visit(Entry& entry, uint64_t round, const char* kind, const Options& o, Watch& watch) {
  if (entry.failed) return;
  alarm(static_cast<unsigned>(o.timeout_s));
  Line("begin").text("id", entry.id).integer("round", static_cast<int64_t>(round)).write();
  try {
    if (!entry.model) {
      if (o.profile) entry.tracer = std::make_unique<Tracer>();
      const int64_t start = now_ns();
      entry.model = std::make_unique<Model>(entry.path, entry.tracer.get());
      const int64_t load_ns = now_ns() - start;
      entry.model->make_inputs("");
      if (entry.tracer) entry.tracer->clear();
      const int64_t first_ns = entry.model->run();
      entry.timed = std::make_unique<Timed>(*entry.model, entry.path, o);
      Line("load").text("id", entry.id).integer("load_ns", load_ns).integer("first_ns", first_ns).write();
    }
    if (entry.tracer) {
      warm_up(*entry.timed, o.warm_ms);
      time_operations(*entry.timed, *entry.tracer, entry.id, o);
    } else {
      time_session(*entry.timed, kind, entry.id, round, o, watch);
    }
  } catch (const Failure& failure) {
    entry.failed = true;
    Line("error").text("id", entry.id).text("stage", failure.stage).text("reason", failure.what()).write();
  } catch (const std::exception& error) {
    entry.failed = true;
    Line("error").text("id", entry.id).text("stage", entry.model ? "run" : "load").text("reason", error.what()).write();
  }
  if (entry.failed || !entry.stays) {
    entry.timed.reset();
    entry.model.reset();
  }
  alarm(0);
}

// Files with fewer visits join later, so that all are done in the last round.
int run_rounds(const Options& o, std::vector<Entry> entries) {
  uint64_t rounds = 0, since_sentinel = 0, counter = mix(o.seed + 1);
  for (const auto& entry : entries) rounds = std::max(rounds, entry.visits);
  Watch watch(o.quiet_ppm, o.memory_ppm);
  Entry sentinel;
  sentinel.id = "sentinel";
  sentinel.path = o.sentinel;
  sentinel.stays = true;
  sentinel.failed = o.sentinel.empty() || o.profile;
  if (rounds > 0) visit(sentinel, 0, "sentinel", o, watch);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<Entry*> order;
    for (auto& entry : entries) {
      if (entry.visits + round >= rounds && !entry.failed) order.push_back(&entry);
    }
    shuffle(order, counter);
    for (Entry* entry : order) {
      visit(*entry, round, "session", o, watch);
      if (++since_sentinel % o.sentinel_every == 0) visit(sentinel, round, "sentinel", o, watch);
    }
  }
  Line("end").write();
  return 0;
}

// One execution of one file, of a stream one for each frame; the outputs go to a file one after the other, as raw
// float32 in the order of their axes.
int run_check(const Options& o) {
  try {
    alarm(static_cast<unsigned>(o.timeout_s));
    const int64_t start = now_ns();
    Model model(o.check, nullptr);
    const int64_t load_ns = now_ns() - start;
    model.make_inputs(o.input);
    const int64_t first_ns = model.run_frame(0);
    std::vector<float> values;
    std::vector<int> shape;
    for (size_t frame = 0; frame < model.frames(); ++frame) {
      if (frame > 0) model.run_frame(frame);
      auto tensor = model.output();
      et::Span<const int32_t> sizes(tensor.sizes().data(), tensor.sizes().size());
      et::Span<const uint8_t> order(tensor.dim_order().data(), tensor.dim_order().size());
      for (size_t at : offsets(sizes, order)) values.push_back(tensor.const_data_ptr<float>()[at]);
      shape.assign(sizes.begin(), sizes.end());
    }
    if (!shape.empty()) shape[0] *= static_cast<int>(model.frames());
    if (!o.output.empty()) {
      std::ofstream file(o.output, std::ios::binary);
      file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(4 * values.size()));
      file.close();
      if (!file) throw Failure("write", o.output + ": " + std::strerror(errno));
    }
    Line("check")
        .integers("shape", shape)
        .integer("load_ns", load_ns)
        .integer("first_ns", first_ns)
        .write();
    return 0;
  } catch (const Failure& failure) {
    Line("error").text("id", "check").text("stage", failure.stage).text("reason", failure.what()).write();
  } catch (const std::exception& error) {
    Line("error").text("id", "check").text("stage", "load").text("reason", error.what()).write();
  }
  return 1;
}

}  // namespace
}  // namespace hwbench

int main(int argc, char** argv) {
  using namespace hwbench;
  const Options options = parse(argc, argv);
  std::vector<Entry> entries = options.check.empty() ? read_list(options) : std::vector<Entry>{};
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGALRM, SIG_DFL);
  out = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  pin(options.cpus);
  limit_memory();
  et::register_pal(et::PalImpl::create(keep_log, "runner.cpp"));
  et::runtime_init();
  // Before the first file: a delegate takes the pool that is there when it is loaded. One thread means no pool.
  std::optional<threadpool::NoThreadPoolGuard> alone;
  size_t threads = 1;
  if (options.threads == 1) {
    alone.emplace();
  } else {
    threadpool::get_threadpool()->_unsafe_reset_threadpool(static_cast<uint32_t>(options.threads));
    threads = threadpool::get_threadpool()->get_thread_count();
  }
  Line("start")
      .text("runner", "native")
      .raw("versions", "{\"executorch\":" + Line::quoted(HWBENCH_EXECUTORCH_VERSION) + "}")
      .integer("threads", static_cast<int64_t>(threads))
      .integers("cpus", affinity())
      .integer("pid", getpid())
      .write();
  return options.check.empty() ? run_rounds(options, std::move(entries)) : run_check(options);
}
