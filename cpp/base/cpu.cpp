#include "base/cpu.h"

#ifdef BACKOPS_X86
#include <cpuid.h>
#endif
#ifdef BACKOPS_AMX
#include <sys/syscall.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#elif defined(BACKOPS_NEON) && defined(__linux__)
#include <sys/auxv.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>

#include "base/caches.h"
#include "base/error.h"

namespace backops {
namespace {

struct NamedCapability {
  Capability capability;
  const char* name;
};

constexpr NamedCapability kNames[] = {{Capability::avx2, "avx2"},
                                      {Capability::avx512, "avx512"},
                                      {Capability::wide_512, "wide_512"},
                                      {Capability::avx512_bf16, "avx512_bf16"},
                                      {Capability::amx, "amx"},
                                      {Capability::neon, "neon"},
                                      {Capability::bf16_products, "bf16_products"}};

#ifdef BACKOPS_X86
struct CpuidAnswer {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

CpuidAnswer cpuid(unsigned leaf, unsigned subleaf = 0) {
  CpuidAnswer r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// Others than AMD's that have AVX-512 multiply it at once.
bool multiplies_512_at_once() {
  constexpr unsigned kAmd = 0x68747541;  // the first letters of its name
  const unsigned version = cpuid(1).a;
  return cpuid(0).b != kAmd ||
         amd_multiplies_512_at_once(cpuid(0x8000001a).a,
                                    (version >> 8 & 15) + (version >> 20 & 255));
}

// Tiles, and products of bfloat16. Some virtual machines do not tell how large tiles are; all that
// have been built are alike.
bool has_amx() {
#ifdef BACKOPS_AMX
  constexpr unsigned kBFloat16 = 1u << 22, kTiles = 1u << 24;
  constexpr int kGetSupported = 0x1021, kTileData = 18;
  const unsigned features = cpuid(7).d;
  unsigned long states = 0;
  return (features & kBFloat16) != 0 && (features & kTiles) != 0 &&
         syscall(SYS_arch_prctl, kGetSupported, &states) == 0 && (states >> kTileData & 1) != 0;
#else
  return false;
#endif
}

void find_capabilities(Cpu& cpu) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  constexpr unsigned kBFloat16Products = 1u << 5;
  cpu.set(Capability::avx2, avx2);
  cpu.set(Capability::avx512, avx512);
  cpu.set(Capability::wide_512, avx512 && multiplies_512_at_once());
  cpu.set(Capability::avx512_bf16, avx512 && (cpuid(7, 1).a & kBFloat16Products) != 0);
  cpu.set(Capability::amx, avx512 && has_amx());
  // All of one family so far have the instruction that clears a line, and no others.
  constexpr unsigned kClearsLines = 1u << 0;
  cpu.absorbs_stores = (cpuid(0x80000008).b & kClearsLines) != 0;
}

// The largest cache a leaf of this format describes, or 0. The C library multiplies AMD's by the
// number of cores that it thinks share one.
std::int64_t largest_cache(unsigned leaf) {
  std::int64_t largest = 0;
  for (unsigned index = 0; index < 8; ++index) {
    const CpuidAnswer cache = cpuid(leaf, index);
    if ((cache.a & 31) == 0) break;  // no more caches
    const std::int64_t ways = (cache.b >> 22) + 1, parts = (cache.b >> 12 & 1023) + 1;
    const std::int64_t line = (cache.b & 4095) + 1, sets = std::int64_t{cache.c} + 1;
    largest = std::max(largest, ways * parts * line * sets);
  }
  return largest;
}

void find_last_level(Cpu& cpu) {
  constexpr unsigned kIntel = 4, kAmd = 0x8000001d;
  const std::int64_t bytes = std::max(largest_cache(kIntel), largest_cache(kAmd));
  if (bytes > 0) cpu.last_level_bytes = bytes;
}
#elif defined(BACKOPS_NEON)
bool multiplies_bfloat16() {
#if defined(__APPLE__)
  int has = 0;
  std::size_t bytes = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_BF16", &has, &bytes, nullptr, 0) == 0 && has != 0;
#elif defined(__linux__)
  constexpr unsigned long kBFloat16Products = 1ul << 14;  // HWCAP2_BF16, which older headers lack
  return (getauxval(AT_HWCAP2) & kBFloat16Products) != 0;
#else
  return false;
#endif
}

void find_capabilities(Cpu& cpu) {
  cpu.set(Capability::neon);
  cpu.set(Capability::bf16_products, multiplies_bfloat16());
}
#else
void find_capabilities(Cpu&) {}
#endif

// What is not told stays.
void find_cache(int level, std::int64_t& bytes) {
  const std::int64_t told = cache_bytes(level);
  if (told > 0) bytes = told;
}

Cpu find_cpu() {
  Cpu cpu;
  find_capabilities(cpu);
  find_cache(1, cpu.level1_bytes);
  find_cache(2, cpu.level2_bytes);
  find_cache(3, cpu.last_level_bytes);
#ifdef BACKOPS_X86
  find_last_level(cpu);
#endif
  cpu.cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return cpu;
}

Isa read_limit() {
  const char* text = std::getenv("BACKOPS_ISA");
  if (text == nullptr || *text == '\0') return isa_levels().back();
  std::string names;
  for (const Isa isa : isa_levels()) {
    if (std::string(text) == name_of(isa)) return isa;
    if (!names.empty()) names += isa == isa_levels().back() ? " or " : ", ";
    names += name_of(isa);
  }
  throw Error(ErrorKind::param, "BACKOPS_ISA", "'" + std::string(text) + "'", "expected " + names);
}

void limit(Cpu& cpu, Isa most) {
  if (most < Isa::amx) cpu.set(Capability::amx, false);
  if (most < Isa::avx512_bf16) cpu.set(Capability::avx512_bf16, false);
  if (most < Isa::avx512) {
    cpu.set(Capability::avx512, false);
    cpu.set(Capability::wide_512, false);
  }
  if (most < Isa::avx2) cpu.set(Capability::avx2, false);
  if (most < Isa::neon) {
    cpu.set(Capability::neon, false);
    cpu.set(Capability::bf16_products, false);
  }
}

}  // namespace

bool amd_multiplies_512_at_once(unsigned units, unsigned family) {
  constexpr unsigned kUnits256 = 1u << 2, kUnits512 = 1u << 3, kZen5 = 26;
  if ((units & (kUnits256 | kUnits512)) != 0) return (units & kUnits512) != 0;
  return family >= kZen5;
}

Isa Cpu::isa() const {
  if (has(Capability::amx)) return Isa::amx;
  if (has(Capability::avx512_bf16)) return Isa::avx512_bf16;
  if (has(Capability::avx512)) return Isa::avx512;
  if (has(Capability::avx2)) return Isa::avx2;
  return has(Capability::neon) ? Isa::neon : Isa::generic;
}

std::int64_t Cpu::stream_bytes() const {
  return std::max(std::int64_t{48} << 20, last_level_bytes / 4);
}

double Cpu::products_per_cycle(std::int64_t vector_bytes) const {
  const std::int64_t at_once = has(Capability::wide_512) ? 64 : has(Capability::avx2) ? 32 : 16;
  return 2.0 / static_cast<double>(std::max<std::int64_t>(1, vector_bytes / at_once));
}

const Cpu& detected_cpu() {
  static const Cpu cpu = find_cpu();
  return cpu;
}

const Cpu& active_cpu() {
  static const Cpu cpu = [] {
    Cpu allowed = detected_cpu();
    limit(allowed, read_limit());
    return allowed;
  }();
  return cpu;
}

const std::vector<Isa>& isa_levels() {
#if defined(__x86_64__)
  static const std::vector<Isa> levels = {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16,
                                          Isa::amx};
#elif defined(__aarch64__)
  static const std::vector<Isa> levels = {Isa::generic, Isa::neon};
#else
  static const std::vector<Isa> levels = {Isa::generic};
#endif
  return levels;
}

Isa detected_isa() { return detected_cpu().isa(); }
Isa active_isa() { return active_cpu().isa(); }

std::string capability_names(const Cpu& cpu) {
  std::string names;
  for (const NamedCapability& own : kNames) {
    if (cpu.has(own.capability)) names += (names.empty() ? "" : " ") + std::string(own.name);
  }
  return names;
}

Cpu described_cpu(const std::string& capabilities, std::int64_t level1_bytes,
                  std::int64_t level2_bytes) {
  Cpu cpu;
  cpu.level1_bytes = level1_bytes;
  cpu.level2_bytes = level2_bytes;
  std::istringstream words(capabilities);
  for (std::string word; words >> word;) {
    const auto* const found =
        std::find_if(std::begin(kNames), std::end(kNames),
                     [&](const NamedCapability& own) { return word == own.name; });
    if (found == std::end(kNames)) {
      throw Error(ErrorKind::param, "capabilities", "'" + word + "'",
                  "expected names as `backops info` prints them");
    }
    cpu.set(found->capability);
  }
  return cpu;
}

}  // namespace backops
