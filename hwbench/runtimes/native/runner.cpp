// Runs many .pte files in one process and times them. Contract of arguments and output: hwbench/runtimes/protocol.py.
//
// Every round visits the files in fresh random order; a visit is warm-up, then samples back to back. One JSON object per
// line goes to stdout, flushed, so that whoever listens loses at most the visit in progress. A file that cannot be loaded
// or run is reported and left out from then on; the others go on.

#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/extension/threadpool/threadpool_guard.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// The wheel ships the thread pool without its header; these are the members we call, as its library exports them.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t num_threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace {

using executorch::aten::ScalarType;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Method;
using executorch::runtime::Program;
namespace et = executorch::runtime;
namespace threadpool = executorch::extension::threadpool;

// ---------------------------------------------------------------------------------------------------- what may go wrong

// A file that does not load or does not run. `stage` is "load" or "run".
struct Failure : std::runtime_error {
  Failure(std::string stage_, const std::string& reason) : std::runtime_error(reason), stage(std::move(stage_)) {}
  std::string stage;
};

// The first error that the engine logged since the last reset: the innermost, so the most exact one.
std::string first_log;

void keep_log(et_timestamp_t, et_pal_log_level_t level, const char* file, const char*, size_t line, const char* message,
              size_t) {
  if (level != et_pal_log_level_t::kError && level != et_pal_log_level_t::kFatal) return;
  if (first_log.empty()) first_log = message;
  std::fprintf(stderr, "%s:%zu] %s\n", file, line, message);
}

void check(Error error, const char* stage) {
  if (error == Error::Ok) return;
  char code[16];
  std::snprintf(code, sizeof code, " (0x%02x)", static_cast<unsigned>(error));
  std::string name = executorch::runtime::to_string(error);
  name = name.substr(name.rfind(':') + 1);
  throw Failure(stage, name + code + (first_log.empty() ? "" : ": " + first_log));
}

// ------------------------------------------------------------------------------------------------------------- options

struct Options {
  std::string list, sentinel, check, input, output;
  uint64_t rounds = 1, seed = 0, min_samples = 10, sentinel_every = 10, threads = 1, timeout_s = 60;
  double warm_ms = 50, min_ms = 100, max_ms = 2000;
  std::vector<int> cpus;
  bool profile = false;
};

[[noreturn]] void usage(const std::string& message) {
  std::fprintf(stderr, "runner: %s\n", message.c_str());
  std::exit(2);
}

template <typename T>
T number(const std::string& name, const std::string& text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < T{}) usage(name + ": not a number: " + text);
  return value;
}

Options parse(int argc, char** argv) {
  Options o;
  std::map<std::string, std::string*> texts{
      {"--list", &o.list}, {"--sentinel", &o.sentinel}, {"--check", &o.check}, {"--input", &o.input}, {"--output", &o.output}};
  std::map<std::string, uint64_t*> counts{{"--rounds", &o.rounds},
                                          {"--seed", &o.seed},
                                          {"--min-samples", &o.min_samples},
                                          {"--sentinel-every", &o.sentinel_every},
                                          {"--threads", &o.threads},
                                          {"--timeout-s", &o.timeout_s}};
  std::map<std::string, double*> times{{"--warm-ms", &o.warm_ms}, {"--min-ms", &o.min_ms}, {"--max-ms", &o.max_ms}};
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--profile") {
      o.profile = true;
      continue;
    }
    if (i + 1 == argc) usage(name + ": unknown option, or its value is missing");
    std::string value = argv[++i];
    if (auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
    } else if (auto count = counts.find(name); count != counts.end()) {
      *count->second = number<uint64_t>(name, value);
    } else if (auto time = times.find(name); time != times.end()) {
      *time->second = number<double>(name, value);
    } else if (name == "--cpus") {
      for (size_t at = 0; at <= value.size();) {
        size_t comma = std::min(value.find(',', at), value.size());
        o.cpus.push_back(number<int>(name, value.substr(at, comma - at)));
        at = comma + 1;
      }
    } else {
      usage("unknown option " + name);
    }
  }
  if (o.list.empty() == o.check.empty()) usage("give --list FILE or --check FILE");
  if (o.threads < 1 || o.sentinel_every < 1) usage("--threads and --sentinel-every start at 1");
  return o;
}

// --------------------------------------------------------------------------------------------------------------- output

// stdout as it was at the start; what libraries print on descriptor 1 goes to stderr.
FILE* out = nullptr;

// One JSON object, written and flushed as one line.
class Line {
 public:
  explicit Line(const char* kind) { text("kind", kind); }

  Line& text(const char* key, const std::string& value) { return raw(key, quoted(value)); }
  Line& integer(const char* key, int64_t value) { return raw(key, std::to_string(value)); }

  template <typename T>
  Line& integers(const char* key, const std::vector<T>& values) {
    std::string list;
    for (auto value : values) list += (list.empty() ? "" : ",") + std::to_string(value);
    return raw(key, "[" + list + "]");
  }

  Line& raw(const char* key, const std::string& value) {
    body_ += (body_.empty() ? "\"" : ",\"") + std::string(key) + "\":" + value;
    return *this;
  }

  void write() const {
    if (std::fprintf(out, "{%s}\n", body_.c_str()) < 0 || std::fflush(out) != 0) std::exit(1);
  }

  static std::string quoted(const std::string& value) {
    std::string result = "\"";
    for (unsigned char c : value) {
      char escape[8];
      if (c == '"' || c == '\\') {
        (result += '\\') += static_cast<char>(c);
      } else if (c < 0x20) {
        std::snprintf(escape, sizeof escape, "\\u%04x", c);
        result += escape;
      } else {
        result += static_cast<char>(c);
      }
    }
    return result + '"';
  }

 private:
  std::string body_;
};

// ---------------------------------------------------------------------------------------------------------- the machine

int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }

std::vector<int> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) {
    if (cpu >= CPU_SETSIZE) usage("--cpus: no processor " + std::to_string(cpu));
    CPU_SET(cpu, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) != 0 || affinity().size() != cpus.size())
    usage("--cpus: not all of these processors are there and allowed: " + std::string(std::strerror(errno)));
}

// The number in a file of /sys; 0 where there is none.
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : 0;
}

int64_t clock_khz() {
  static const int cpu = affinity().empty() ? 0 : affinity().front();
  return read_number("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/scaling_cur_freq");
}

// Hottest thermal zone of the processors (of all kinds where none is called so), in millidegrees Celsius; 0: unknown.
int64_t temperature_mc() {
  static const std::vector<std::string> zones = [] {
    std::vector<std::string> processors, all;
    for (int zone = 0; zone < 128; ++zone) {
      std::string folder = "/sys/class/thermal/thermal_zone" + std::to_string(zone), type;
      if (!(std::ifstream(folder + "/type") >> type)) continue;
      all.push_back(folder + "/temp");
      std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
      if (type.find("cpu") != std::string::npos || type.find("pkg") != std::string::npos)
        processors.push_back(folder + "/temp");
    }
    return processors.empty() ? all : processors;
  }();
  int64_t hottest = 0;
  for (const auto& zone : zones) hottest = std::max(hottest, read_number(zone));
  return hottest;
}

// -------------------------------------------------------------------------------------------------------- random values

// splitmix64 (Steele, Lea, Flood 2014): a counter is enough state, so the Python runner draws the same numbers.
uint64_t mix(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Fisher-Yates; `counter` goes on from call to call.
template <typename T>
void shuffle(std::vector<T>& items, uint64_t& counter) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[mix(++counter) % i]);
}

// -------------------------------------------------------------------------------------------------- profile of operations

// Collects how long each event of each execution took. Events come in the order in which they start.
class Tracer final : public et::EventTracer {
 public:
  struct Event {
    std::string name;
    std::vector<double> ns;
  };

  void begin() { position_ = 0; }
  void clear() { events_.clear(); }
  const std::vector<Event>& events() const { return events_; }

  void create_event_block(const char*) override {}
  et::EventTracerEntry start_profiling(const char* name, et::ChainID, et::DebugHandle) override {
    return start(name);
  }
  et::EventTracerEntry start_profiling_delegate(const char* name, et::DelegateDebugIntId) override {
    return start(name);
  }
  void end_profiling(et::EventTracerEntry entry) override { finish(entry); }
  void end_profiling_delegate(et::EventTracerEntry entry, const void*, size_t) override { finish(entry); }
  void log_profiling_delegate(const char* name, et::DelegateDebugIntId, et_timestamp_t start_time, et_timestamp_t end_time,
                              const void*, size_t) override {
    events_[slot(name)].ns.push_back(nanoseconds(end_time - start_time));
  }
  void track_allocation(et::AllocatorID, size_t) override {}
  et::AllocatorID track_allocator(const char*) override { return 0; }
  et::Result<bool> log_evalue(const EValue&, et::LoggedEValueType) override { return true; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const executorch::aten::Tensor&) override {
    return true;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const et::ArrayRef<executorch::aten::Tensor>) override {
    return true;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const int&) override { return true; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const bool&) override { return true; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const double&) override {
    return true;
  }
  void set_delegation_intermediate_output_filter(et::EventTracerFilterBase*) override {}

 private:
  // The graph is static: the k-th event of every execution is the same operation.
  size_t slot(const char* name) {
    if (position_ == events_.size()) events_.push_back({name, {}});
    if (events_[position_].name != name) throw Failure("run", "the operations changed between two executions");
    return position_++;
  }
  et::EventTracerEntry start(const char* name) {
    et::EventTracerEntry entry{};
    entry.event_id = static_cast<int64_t>(slot(name));
    entry.start_time = et::pal_current_ticks();
    return entry;
  }
  void finish(const et::EventTracerEntry& entry) {
    auto at = static_cast<size_t>(entry.event_id);
    // Events of loading end after clear().
    if (at < events_.size()) events_[at].ns.push_back(nanoseconds(et::pal_current_ticks() - entry.start_time));
  }
  static double nanoseconds(et_timestamp_t ticks) {
    auto ratio = et::pal_ticks_to_ns_multiplier();
    return static_cast<double>(ticks) * static_cast<double>(ratio.numerator) / static_cast<double>(ratio.denominator);
  }

  std::vector<Event> events_;
  size_t position_ = 0;
};

// A broken file may ask for any amount of memory; it shall fail, and not bring the device down.
void limit_memory() {
  auto bytes = static_cast<rlim_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) / 4 * 3;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  setrlimit(RLIMIT_AS, &limit);
}

// ------------------------------------------------------------------------------------------------------------- one model

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Failure("load", "cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Memory offset of each value in the order N, C, H, W, ... of the axes, for a tensor stored in `dim_order`.
std::vector<size_t> offsets(et::Span<const int32_t> sizes, et::Span<const uint8_t> dim_order) {
  std::vector<size_t> strides(sizes.size(), 1), result{0};
  size_t stride = 1;
  for (size_t i = dim_order.size(); i-- > 0; stride *= static_cast<size_t>(sizes[dim_order[i]])) strides[dim_order[i]] = stride;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<size_t> longer;
    for (size_t base : result) {
      for (int32_t i = 0; i < sizes[axis]; ++i) longer.push_back(base + static_cast<size_t>(i) * strides[axis]);
    }
    result = std::move(longer);
  }
  return result;
}

struct Free {
  void operator()(void* pointer) const { std::free(pointer); }
};

// A loaded file with inputs that are ready to be set.
class Model {
 public:
  Model(const std::string& path, const std::string& input_file, Tracer* tracer) : tracer_(tracer) {
    first_log.clear();
    auto loader = executorch::extension::FileDataLoader::from(path.c_str());
    check(loader.error(), "load");
    loader_.emplace(std::move(*loader));
    auto program = Program::load(&*loader_, Program::Verification::InternalConsistency);
    check(program.error(), "load");
    program_.emplace(std::move(*program));
    auto meta = program_->method_meta("forward");
    check(meta.error(), "load");
    plan_memory(*meta);
    auto method = program_->load_method("forward", &*manager_, tracer);
    check(method.error(), "load");
    method_.emplace(std::move(*method));
    make_inputs(*meta, input_file);
  }

  // Executes once; the input is set anew because planned memory may have been used for something else meanwhile.
  // Returns the nanoseconds of the execution alone.
  int64_t run() {
    for (size_t i = 0; i < inputs_.size(); ++i) check(method_->set_input(EValue(*inputs_[i]), i), "run");
    if (tracer_ != nullptr) tracer_->begin();
    int64_t start = now_ns();
    Error error = method_->execute();
    int64_t end = now_ns();
    check(error, "run");
    return std::max<int64_t>(end - start, 1);
  }

  executorch::aten::Tensor output() const {
    if (method_->outputs_size() == 0 || !method_->get_output(0).isTensor()) throw Failure("run", "no tensor comes out");
    auto tensor = method_->get_output(0).toTensor();
    if (tensor.scalar_type() != ScalarType::Float) throw Failure("run", "the output is not float32");
    return tensor;
  }

 private:
  void plan_memory(const et::MethodMeta& meta) {
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
      auto size = meta.memory_planned_buffer_size(i);
      check(size.error(), "load");
      size_t bytes = (static_cast<size_t>(*size) + 63) / 64 * 64;
      void* memory = std::aligned_alloc(64, std::max<size_t>(bytes, 64));
      if (memory == nullptr) throw Failure("load", "no memory for a buffer of " + std::to_string(*size) + " bytes");
      arenas_.emplace_back(memory);
      spans_.emplace_back(static_cast<uint8_t*>(memory), static_cast<size_t>(*size));
    }
    planned_.emplace(et::Span<et::Span<uint8_t>>(spans_.data(), spans_.size()));
    manager_.emplace(&allocator_, &*planned_, &temporary_);
  }

  void make_inputs(const et::MethodMeta& meta, const std::string& input_file) {
    std::string given = input_file.empty() ? "" : read_file(input_file);
    uint64_t counter = 0;
    for (size_t i = 0; i < meta.num_inputs(); ++i) {
      auto info = meta.input_tensor_meta(i);
      check(info.error(), "load");
      if (info->scalar_type() != ScalarType::Float) throw Failure("load", "input " + std::to_string(i) + " is not float32");
      auto where = offsets(info->sizes(), info->dim_order());
      auto& values = values_.emplace_back(where.size());
      if (!input_file.empty() && (meta.num_inputs() != 1 || given.size() != 4 * where.size()))
        throw Failure("load", "the input needs " + std::to_string(4 * where.size()) + " bytes, the file has " +
                                  std::to_string(given.size()));
      for (size_t k = 0; k < where.size(); ++k) {
        // Uniform in [-1, 1) with 24 bits, exact in float32.
        float value = static_cast<float>(mix(++counter) >> 40) / 8388608.0F - 1.0F;
        if (!input_file.empty()) std::memcpy(&value, given.data() + 4 * k, 4);
        values[where[k]] = value;
      }
      auto sizes = info->sizes();
      auto order = info->dim_order();
      inputs_.push_back(executorch::extension::make_tensor_ptr({sizes.begin(), sizes.end()}, values.data(),
                                                               {order.begin(), order.end()}, {}, ScalarType::Float));
    }
  }

  Tracer* tracer_;
  std::optional<executorch::extension::FileDataLoader> loader_;
  std::optional<Program> program_;
  std::vector<std::unique_ptr<void, Free>> arenas_;
  std::vector<et::Span<uint8_t>> spans_;
  std::optional<et::HierarchicalAllocator> planned_;
  executorch::extension::MallocMemoryAllocator allocator_, temporary_;
  std::optional<et::MemoryManager> manager_;
  std::optional<Method> method_;
  std::vector<std::vector<float>> values_;
  std::vector<executorch::extension::TensorPtr> inputs_;
};

// --------------------------------------------------------------------------------------------------------------- a visit

int64_t median(std::vector<int64_t> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The last five executions are as fast as the five before, to 2 %.
bool stable(const std::vector<int64_t>& runs) {
  if (runs.size() < 10) return false;
  int64_t before = median({runs.end() - 10, runs.end() - 5}), after = median({runs.end() - 5, runs.end()});
  return std::abs(after - before) <= before / 50;
}

// At least the time asked for, then until the executions are stable, at most four times as long.
void warm_up(Model& model, double warm_ms) {
  std::vector<int64_t> runs;
  const int64_t start = now_ns();
  for (double ms = 0; ms < 4 * warm_ms && (ms < warm_ms || !stable(runs));) {
    runs.push_back(model.run());
    ms = static_cast<double>(now_ns() - start) / 1e6;
  }
}

std::vector<int64_t> sample(Model& model, const Options& o) {
  std::vector<int64_t> samples;
  samples.reserve(4096);
  const int64_t start = now_ns();
  for (double ms = 0; samples.empty() || (ms < o.max_ms && (samples.size() < o.min_samples || ms < o.min_ms));) {
    samples.push_back(model.run());
    ms = static_cast<double>(now_ns() - start) / 1e6;
  }
  return samples;
}

void time_session(Model& model, const char* kind, const std::string& id, uint64_t round, const Options& o) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const int64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns();
  auto samples = sample(model, o);
  const int64_t end = now_ns(), cpu_end = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  getrusage(RUSAGE_SELF, &after);
  Line(kind)
      .text("id", id)
      .integer("round", static_cast<int64_t>(round))
      .integers("samples_ns", samples)
      .integer("cpu_ns", cpu_end - cpu)
      .integer("wall_ns", end - wall)
      .integer("nivcsw", after.ru_nivcsw - before.ru_nivcsw)
      .integer("majflt", after.ru_majflt - before.ru_majflt)
      .integer("maxrss_kb", after.ru_maxrss)
      .integer("clock_khz", clock_khz())
      .integer("temp_mc", temperature_mc())
      .integer("at_ns", wall + (end - wall) / 2)
      .write();
}

// Mean of the middle half: robust, and finer than the microsecond in which XNNPACK reports.
double middle_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  auto skip = static_cast<std::ptrdiff_t>(values.size() / 4);
  auto first = values.begin() + skip, last = values.end() - skip;
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

void time_operations(Model& model, Tracer& tracer, const std::string& id, const Options& o) {
  tracer.clear();
  auto samples = sample(model, o);
  std::string ops;
  for (const auto& event : tracer.events()) {
    if (event.ns.empty()) continue;
    char tail[64];
    std::snprintf(tail, sizeof tail, ",%.1f,%zu]", middle_mean(event.ns), event.ns.size());
    ops += (ops.empty() ? "[" : ",[") + Line::quoted(event.name) + tail;
  }
  Line("ops").text("id", id).integer("total_ns", median(samples)).raw("ops", "[" + ops + "]").write();
}

// ------------------------------------------------------------------------------------------------------------ the rounds

struct Entry {
  std::string id, path;
  uint64_t visits = 0;
  std::unique_ptr<Tracer> tracer;
  std::unique_ptr<Model> model;
  bool failed = false;
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

// Loads on the first visit. The line `begin` comes before the file is touched, so that a crash has a name.
void visit(Entry& entry, uint64_t round, const char* kind, const Options& o) {
  if (entry.failed) return;
  alarm(static_cast<unsigned>(o.timeout_s));
  Line("begin").text("id", entry.id).integer("round", static_cast<int64_t>(round)).write();
  try {
    if (!entry.model) {
      if (o.profile) entry.tracer = std::make_unique<Tracer>();
      const int64_t start = now_ns();
      entry.model = std::make_unique<Model>(entry.path, "", entry.tracer.get());
      const int64_t load_ns = now_ns() - start;
      if (entry.tracer) entry.tracer->clear();
      const int64_t first_ns = entry.model->run();
      Line("load").text("id", entry.id).integer("load_ns", load_ns).integer("first_ns", first_ns).write();
    }
    warm_up(*entry.model, o.warm_ms);
    if (entry.tracer) {
      time_operations(*entry.model, *entry.tracer, entry.id, o);
    } else {
      time_session(*entry.model, kind, entry.id, round, o);
    }
  } catch (const Failure& failure) {
    entry.failed = true;
    Line("error").text("id", entry.id).text("stage", failure.stage).text("reason", failure.what()).write();
  } catch (const std::exception& error) {
    entry.failed = true;
    Line("error").text("id", entry.id).text("stage", entry.model ? "run" : "load").text("reason", error.what()).write();
  }
  if (entry.failed) entry.model.reset();
  alarm(0);
}

// Files with fewer visits join later, so that all are done in the last round.
int run_rounds(const Options& o, std::vector<Entry> entries) {
  uint64_t rounds = 0, since_sentinel = 0, counter = mix(o.seed + 1);
  for (const auto& entry : entries) rounds = std::max(rounds, entry.visits);
  Entry sentinel;
  sentinel.id = "sentinel";
  sentinel.path = o.sentinel;
  sentinel.failed = o.sentinel.empty() || o.profile;
  if (rounds > 0) visit(sentinel, 0, "sentinel", o);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<Entry*> order;
    for (auto& entry : entries) {
      if (entry.visits + round >= rounds && !entry.failed) order.push_back(&entry);
    }
    shuffle(order, counter);
    for (Entry* entry : order) {
      visit(*entry, round, "session", o);
      if (++since_sentinel % o.sentinel_every == 0) visit(sentinel, round, "sentinel", o);
    }
  }
  Line("end").write();
  return 0;
}

// One execution of one file; the output goes to a file as raw float32 in the order of its axes.
int run_check(const Options& o) {
  try {
    alarm(static_cast<unsigned>(o.timeout_s));
    const int64_t start = now_ns();
    Model model(o.check, o.input, nullptr);
    const int64_t load_ns = now_ns() - start, first_ns = model.run();
    auto tensor = model.output();
    et::Span<const int32_t> sizes(tensor.sizes().data(), tensor.sizes().size());
    et::Span<const uint8_t> order(tensor.dim_order().data(), tensor.dim_order().size());
    std::vector<float> values;
    for (size_t at : offsets(sizes, order)) values.push_back(tensor.const_data_ptr<float>()[at]);
    if (!o.output.empty()) {
      std::ofstream file(o.output, std::ios::binary);
      file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(4 * values.size()));
      file.close();
      if (!file) usage("--output: cannot write " + o.output);
    }
    Line("check")
        .integers("shape", std::vector<int>(sizes.begin(), sizes.end()))
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

int main(int argc, char** argv) {
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
