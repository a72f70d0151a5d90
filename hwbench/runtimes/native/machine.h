// Clocks, processors, temperatures and memory of the machine.

#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "options.h"

namespace hwbench {

inline int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }

inline std::vector<int> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

inline std::string listed(const std::vector<int>& cpus) {
  std::string text;
  for (int cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text;
}

inline void pin(std::vector<int> cpus) {
  if (cpus.empty()) return;
  const std::vector<int> usable = affinity();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) {
    if (cpu >= CPU_SETSIZE) usage("--cpus: no processor " + std::to_string(cpu));
    CPU_SET(cpu, &set);
  }
  std::sort(cpus.begin(), cpus.end());
  if (sched_setaffinity(0, sizeof set, &set) != 0 || affinity() != cpus)
    usage("--cpus " + listed(cpus) + ": not all of these processors are there and allowed; usable: " + listed(usable));
}

// The number in a file of /sys; 0 where there is none.
inline int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : 0;
}

inline int64_t clock_khz() {
  static const int cpu = affinity().empty() ? 0 : affinity().front();
  return read_number("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/scaling_cur_freq");
}

// Zones tell millidegrees, some old phones' tenths or whole degrees; 0 for what no sensor of a phone can mean.
inline int64_t millidegrees(int64_t reading) {
  if (reading <= 0 || reading >= 150'000) return 0;
  return reading < 150 ? reading * 1000 : reading < 1500 ? reading * 100 : reading;
}

// Names of zones of processors: x86, Qualcomm and MediaTek, Samsung and Google, Rockchip.
inline bool of_processors(const std::string& type) {
  for (const char* part : {"cpu", "pkg", "big", "mid", "little", "core", "soc"}) {
    if (type.find(part) != std::string::npos) return true;
  }
  return false;
}

// Qualcomm's zones of the state of charge, in percent: "soc" of kernels 4.x, and "socd", which is 100 minus it.
inline bool is_charge(const std::string& type, int64_t reading) {
  return (type == "soc" || type == "socd") && reading <= 100;
}

// Size of the largest cache of the first processor we are bound to; the numbers as in protocol.py.
inline size_t last_cache_bytes() {
  const int cpu = affinity().empty() ? 0 : affinity().front();
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    largest = std::max(largest, static_cast<size_t>(read_number(path + "/size")) * 1024);
  }
  return largest == 0 ? size_t{8} << 20 : std::max(largest, size_t{4} << 20);
}

// Writes over twice the last cache.
inline void flush_caches() {
  static std::vector<uint8_t> junk(2 * last_cache_bytes());
  static uint8_t value = 0;
  std::memset(junk.data(), ++value, junk.size());
  asm volatile("" : : "r"(junk.data()) : "memory");
}

// Hottest thermal zone of the processors (of all kinds where none is called so), in millidegrees Celsius; 0: unknown.
inline int64_t temperature_mc() {
  static const std::vector<std::string> zones = [] {
    std::vector<std::string> processors, all;
    for (int zone = 0; zone < 128; ++zone) {
      std::string folder = "/sys/class/thermal/thermal_zone" + std::to_string(zone), type;
      if (!(std::ifstream(folder + "/type") >> type)) continue;
      std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
      if (is_charge(type, read_number(folder + "/temp"))) continue;
      all.push_back(folder + "/temp");
      if (of_processors(type)) processors.push_back(folder + "/temp");
    }
    return processors.empty() ? all : processors;
  }();
  int64_t hottest = 0;
  for (const auto& zone : zones) hottest = std::max(hottest, millidegrees(read_number(zone)));
  return hottest;
}

// Most memory that this process has had. ru_maxrss outlives exec on Linux: it has what the parent had.
inline int64_t peak_memory_kb() {
  std::ifstream status("/proc/self/status");
  int64_t kb = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:" && status >> kb) return kb;
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

inline uint64_t machine_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// A broken file may ask for any amount of memory; it shall fail, and not bring the device down.
inline void limit_memory() {
  const rlim_t bytes = machine_bytes() / 4 * 3;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace hwbench
