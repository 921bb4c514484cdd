// What plans know of a CPU: a set of capabilities, the sizes of its caches, what it multiplies in a
// cycle. Sizes of tiles and the choice of engines come from here, so that a test can ask what
// another CPU would do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/export.h"
#include "base/isa.h"

namespace backops {

enum class Capability : std::uint8_t {
  avx2,           // with FMA and F16C
  avx512,         // F, BW, DQ, VL
  avx512_bf16,    // products of bfloat16 pairs
  amx,            // tiles of bfloat16
  wide_512,       // multiplies 512 bits at once, not 256 twice
  neon,           // of every AArch64
  bf16_products,  // of ARM: products of bfloat16 pairs
};

struct Cpu {
  std::uint32_t capabilities = 0;  // a bit for each
  std::int64_t level1_bytes = 32 << 10;
  std::int64_t level2_bytes = 1 << 20;       // of one core
  std::int64_t last_level_bytes = 32 << 20;  // shared by cores
  int cores = 1;
  // Stores in bursts of a few KB reach memory as fast as any, without asking for it first or going
  // past the caches. Zen 4 writes to memory half as fast as it reads: what stores read first costs
  // it nothing (32 x 64 x 112 x 112 float32, k3s2: 3.4 ms, asked for 4.1 ms, past the caches 5.1
  // ms).
  bool absorbs_stores = false;

  bool has(Capability capability) const {
    return (capabilities >> static_cast<unsigned>(capability) & 1) != 0;
  }
  void set(Capability capability, bool value = true) {
    const std::uint32_t bit = 1u << static_cast<unsigned>(capability);
    capabilities = value ? capabilities | bit : capabilities & ~bit;
  }

  // The best set of kernels it runs.
  Isa isa() const;
  // Results of so many bytes do not stay in any cache: writing past them spares reading them first.
  // A large last-level cache is shared, so a quarter of it counts.
  std::int64_t stream_bytes() const;
  // Whether its kernels have stores that go past the caches.
  bool can_stream() const { return has(Capability::avx2); }
  // How far ahead of stores memory is asked for: far enough for memory to answer, and no more than
  // a first-level cache has room for beside what is worked on.
  std::int64_t announce_bytes() const { return level1_bytes / 16; }
  // Multiplications and additions of vectors of so many bytes that one core begins in a cycle.
  double products_per_cycle(std::int64_t vector_bytes) const;
};

// The CPU this process runs on, as far as this library was built for it.
BACKOPS_API const Cpu& detected_cpu();

// The same without what BACKOPS_ISA forbids, which is read once. Throws Error for a level that is
// none.
BACKOPS_API const Cpu& active_cpu();

// What BACKOPS_ISA may be on this architecture, least first.
BACKOPS_API const std::vector<Isa>& isa_levels();

// One that tests describe: names as capability_names() has them, a space between. Throws Error for
// a name that is none.
BACKOPS_API Cpu described_cpu(const std::string& capabilities, std::int64_t level1_bytes,
                              std::int64_t level2_bytes);

// Of AMD's CPUs with AVX-512, by what CPUID says of the width of their units. Virtual machines were
// seen to leave that out (on a Zen 5 that does multiply 512 bits at once); then the family tells.
BACKOPS_API bool amd_multiplies_512_at_once(unsigned units, unsigned family);

// The names of what it has, for people.
BACKOPS_API std::string capability_names(const Cpu& cpu);

}  // namespace backops
