#include "acl/products.h"

#include <cstdlib>
#include <mutex>

#include "acl/failure.h"
#include "aclnn/aclnn_base.h"

namespace backops::acl {
namespace {

constexpr const char* kDefaultSocName = "Ascend910B1";

constexpr CubeRules kA2Cube{true, Rounding::hf32_11, true, false};
constexpr CubeRules k950Cube{true, Rounding::hf32_10, true, true};
constexpr CubeRules kHalfCube{false, Rounding::float16, false, false};  // has no float32

constexpr Product kA2{"Atlas A2", true, true, 0, kA2Cube};
constexpr Product kA3{"Atlas A3", true, true, 0, kA2Cube};
constexpr Product k950{"Ascend 950", true, true, 0, k950Cube};
constexpr Product kTraining{"Atlas training series", false, true, 255, kHalfCube};
constexpr Product kInference{"Atlas inference series", false, true, 255, kHalfCube};
constexpr Product k200I{"Atlas 200I/500 A2", true, false, 0, kA2Cube};

struct SocName {
  const char* pattern;  // a trailing * stands for anything
  const Product* product;
};

// The first that fits counts: Ascend910B without a digit is older than Ascend910B1.
constexpr SocName kSocNames[] = {
    {"Ascend910_93*", &kA3},       {"Ascend910A", &kTraining},    {"Ascend910B", &kTraining},
    {"Ascend910ProA", &kTraining}, {"Ascend910ProB", &kTraining}, {"Ascend910PremiumA", &kTraining},
    {"Ascend910B*", &kA2},         {"Ascend950*", &k950},         {"Ascend310P*", &kInference},
    {"Ascend310B*", &k200I},
};

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern.back() != '*') return name == pattern;
  return name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
}

const Product* find_product(const std::string& name) {
  for (const SocName& each : kSocNames) {
    if (matches(each.pattern, name)) return each.product;
  }
  return nullptr;
}

// Names are never taken back, because programs keep the pointer that aclrtGetSocName gave them.
struct Soc {
  std::string name;
  const Product* product;
};

const Soc* read_soc() {
  const char* const given = std::getenv("BACKOPS_SOC");
  const std::string name = given == nullptr || *given == '\0' ? kDefaultSocName : given;
  return new Soc{name, find_product(name)};
}

std::mutex g_mutex;
const Soc* g_soc = nullptr;

const Soc& current_soc() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_soc == nullptr) g_soc = read_soc();
  return *g_soc;
}

[[noreturn]] void refuse(std::int8_t cube_math_type, const std::string& rule) {
  throw Failure(ACLNN_ERR_PARAM_INVALID, "cubeMathType", std::to_string(cube_math_type), rule);
}

}  // namespace

const std::string& soc_name() { return current_soc().name; }

void read_soc_name() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const char* const given = std::getenv("BACKOPS_SOC");
  if (g_soc != nullptr && given != nullptr && g_soc->name == given) return;
  g_soc = read_soc();
}

const Product& current_product() {
  const Soc& soc = current_soc();
  if (soc.product != nullptr) return *soc.product;
  std::string known;
  for (const SocName& each : kSocNames) {
    known += std::string(known.empty() ? "" : ", ") + each.pattern;
  }
  throw Failure(ACL_ERROR_INVALID_PARAM, "BACKOPS_SOC", "'" + soc.name + "'",
                "expected one of " + known);
}

Rounding product_rounding(const Product& product, Operation operation, DType dtype,
                          std::int8_t cube_math_type) {
  if (cube_math_type < KEEP_DTYPE || cube_math_type > USE_HF32) {
    refuse(cube_math_type, "expected 0 to 3");
  }
  // Where no document speaks, a value that the dtype cannot use has no effect.
  if (operation == Operation::convolution && dtype != DType::float32) return Rounding::none;
  const CubeRules& rules = product.cube;
  const std::string here = std::string(" for ") + name_of(dtype) + " on " + product.series;
  const bool without_hf32 = rules.global_pooling_only && operation == Operation::other_pooling;
  const bool is_float32 = dtype == DType::float32;
  switch (cube_math_type) {
    case KEEP_DTYPE:
      if (is_float32 && !rules.keeps_float32) refuse(cube_math_type, "expected 1 or 2" + here);
      return Rounding::none;
    case ALLOW_FP32_DOWN_PRECISION:
      return is_float32 && !without_hf32 ? rules.down : Rounding::none;
    case USE_FP16:
      if (dtype == DType::bfloat16 && !without_hf32)
        refuse(cube_math_type, "expected 0 or 1" + here);
      return is_float32 ? Rounding::float16 : Rounding::none;
    default:
      if (without_hf32) return Rounding::none;
      if (!rules.has_hf32)
        refuse(cube_math_type, "expected 0 to 2 on " + std::string(product.series));
      if (!is_float32) refuse(cube_math_type, "expected 0 to 2" + here);
      return rules.down;
  }
}

}  // namespace backops::acl
