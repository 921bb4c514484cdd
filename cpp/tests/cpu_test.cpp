// What is known of the CPU: levels that BACKOPS_ISA takes, caches that the system tells of.
#include "base/cpu.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/caches.h"
#include "tests/check.h"
#include "tests/errors.h"

namespace backops {
namespace {

using namespace test;

std::string names_of_levels() {
  std::string names;
  for (const Isa isa : isa_levels()) {
    if (!names.empty()) names += isa == isa_levels().back() ? " or " : ", ";
    names += name_of(isa);
  }
  return names;
}

void test_levels_are_those_of_the_architecture() {
#if defined(__x86_64__)
  CHECK_EQUAL(names_of_levels(), "generic, avx2, avx512, avx512_bf16 or amx");
#elif defined(__aarch64__)
  CHECK_EQUAL(names_of_levels(), "generic or neon");
  CHECK_EQUAL(name_of(detected_isa()), std::string("neon"));
  CHECK(detected_cpu().has(Capability::neon));
#endif
  bool is_level = false;
  for (const Isa isa : isa_levels()) is_level |= isa == detected_isa();
  CHECK(is_level);
}

// A wrong name leaves nothing behind: it is read again. The right one is read once.
void test_level_is_limited_by_the_environment() {
  const bool is_arm = name_of(isa_levels().back()) == std::string("neon");
  for (const std::string name : {"sse9", "NEON", "neon,generic", "0", is_arm ? "avx2" : "neon"}) {
    setenv("BACKOPS_ISA", name.c_str(), 1);
    CHECK_EQUAL(error_of([] { active_isa(); }),
                "param: BACKOPS_ISA is '" + name + "', expected " + names_of_levels());
  }
  setenv("BACKOPS_ISA", "generic", 1);
  CHECK_EQUAL(name_of(active_isa()), std::string("generic"));
  CHECK_EQUAL(capability_names(active_cpu()), "");
}

// One cache of a CPU as Linux describes it.
struct CacheFiles {
  const char *level, *type, *size, *shared_cpu_map;
};

void write_word(const std::string& path, const char* word) {
  std::ofstream file(path);
  if (word != nullptr) file << word << '\n';
}

void test_caches_are_read_from_files() {
  char folder[] = "/tmp/backops_caches_XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const CacheFiles caches[] = {{"1", "Instruction", "48K", "00000001"},
                               {"1", "Data", "64K", "00000001"},
                               {"2", "Unified", "2048K", "00000000,0000000f"},
                               {"3", "Unified", "32M", "ffffffff,ffffffff"}};
  std::string made[4];
  for (int i = 0; i < 4; ++i) {
    made[i] = std::string(folder) + "/index" + std::to_string(i);
    CHECK_EQUAL(mkdir(made[i].c_str(), 0700), 0);
    write_word(made[i] + "/level", caches[i].level);
    write_word(made[i] + "/type", caches[i].type);
    write_word(made[i] + "/size", caches[i].size);
    write_word(made[i] + "/shared_cpu_map", caches[i].shared_cpu_map);
  }
  CHECK_EQUAL(cache_bytes_of_files(folder, 1), 64 << 10);
  CHECK_EQUAL(cache_bytes_of_files(folder, 2), 512 << 10);  // one of four cores
  CHECK_EQUAL(cache_bytes_of_files(folder, 3), 32 << 20);
  CHECK_EQUAL(cache_bytes_of_files(folder, 4), 0);
  CHECK_EQUAL(cache_bytes_of_files("/nowhere", 1), 0);
  write_word(made[1] + "/size", "many");
  CHECK_EQUAL(cache_bytes_of_files(folder, 1), 0);
  for (const std::string& index : made) {
    for (const char* file : {"/level", "/type", "/size", "/shared_cpu_map"}) {
      unlink((index + file).c_str());
    }
    rmdir(index.c_str());
  }
  CHECK_EQUAL(rmdir(folder), 0);
}

void test_caches_of_this_cpu_are_sensible() {
  const Cpu& cpu = detected_cpu();
  CHECK(cpu.level1_bytes >= 4 << 10 && cpu.level1_bytes <= 1 << 20);
  CHECK(cpu.level2_bytes >= 32 << 10 && cpu.level2_bytes <= 64 << 20);
  CHECK(cpu.cores >= 1);
}

void test_sizes_follow_from_what_a_cpu_is() {
  const Cpu laptop = described_cpu("avx2", 48 << 10, 1 << 20),
            other = described_cpu("", 32 << 10, 1 << 20);
  CHECK_EQUAL(laptop.announce_bytes(), 3072);
  CHECK_EQUAL(other.announce_bytes(), 2048);
  CHECK(laptop.can_stream());
  CHECK(!other.can_stream());  // generic and NEON copy instead
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_levels_are_those_of_the_architecture();
  test_level_is_limited_by_the_environment();
  test_caches_are_read_from_files();
  test_caches_of_this_cpu_are_sensible();
  test_sizes_follow_from_what_a_cpu_is();
  return test::finish();
}
