// The arguments of the runner.

#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace hwbench {

struct Options {
  std::string list, sentinel, check, input, output, cache = "warm";
  uint64_t rounds = 1, seed = 0, min_samples = 10, sentinel_every = 10, threads = 1, timeout_s = 60;
  uint64_t quiet_ppm = 0, memory_ppm = 0;
  double warm_ms = 50, min_ms = 100, max_ms = 2000;
  std::vector<int> cpus;
  bool profile = false, probe = false;
};

[[noreturn]] inline void usage(const std::string& message) {
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

inline Options parse(int argc, char** argv) {
  Options o;
  std::map<std::string, std::string*> texts{{"--list", &o.list},
                                            {"--sentinel", &o.sentinel},
                                            {"--check", &o.check},
                                            {"--input", &o.input},
                                            {"--output", &o.output},
                                            {"--cache", &o.cache}};
  std::map<std::string, uint64_t*> counts{{"--rounds", &o.rounds},
                                          {"--seed", &o.seed},
                                          {"--min-samples", &o.min_samples},
                                          {"--sentinel-every", &o.sentinel_every},
                                          {"--threads", &o.threads},
                                          {"--timeout-s", &o.timeout_s},
                                          {"--quiet-ppm", &o.quiet_ppm},
                                          {"--memory-ppm", &o.memory_ppm}};
  std::map<std::string, double*> times{{"--warm-ms", &o.warm_ms}, {"--min-ms", &o.min_ms}, {"--max-ms", &o.max_ms}};
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--profile" || name == "--probe") {
      (name == "--profile" ? o.profile : o.probe) = true;
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
  if (o.cache != "warm" && o.cache != "rotate" && o.cache != "flush") usage("--cache: no state is called " + o.cache);
  if (o.threads < 1 || o.sentinel_every < 1) usage("--threads and --sentinel-every start at 1");
  return o;
}

}  // namespace hwbench
