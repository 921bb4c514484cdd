// Beginning and end, devices, contexts and their settings.
#include <fstream>
#include <string>

#include "acl/acl.h"
#include "acl/context.h"
#include "acl/executor.h"
#include "acl/failure.h"
#include "acl/handles.h"
#include "acl/products.h"

using namespace backops::acl;

namespace {

// Of the runtime interface that these functions follow.
constexpr int kMajorVersion = 1, kMinorVersion = 0, kPatchVersion = 0;

std::shared_ptr<Context> find_context(aclrtContext context) {
  require(context, "context");
  if (auto found = Handles<Context>::all().find(context)) return found;
  throw Failure(ACL_ERROR_INVALID_PARAM, "context", "no context that is alive",
                "expected one from aclrtCreateContext or aclrtGetCurrentContext");
}

void check_config(const char* path) {
  if (path == nullptr || *path == '\0' || std::ifstream(path).good()) return;
  throw Failure(ACL_ERROR_INVALID_PARAM, "configPath", std::string("'") + path + "'",
                "expected NULL or a file that can be read");
}

void check_option(aclSysParamOpt opt) {
  if (opt == ACL_OPT_DETERMINISTIC) return;
  throw Failure(ACL_ERROR_INVALID_PARAM, "opt", std::to_string(static_cast<int>(opt)),
                "expected ACL_OPT_DETERMINISTIC (0)");
}

int checked_flag(aclSysParamOpt opt, std::int64_t value) {
  check_option(opt);
  if (value == 0 || value == 1) return static_cast<int>(value);
  throw Failure(ACL_ERROR_INVALID_PARAM, "value", std::to_string(value), "expected 0 or 1");
}

}  // namespace

aclError aclInit(const char* configPath) {
  return guarded("aclInit", [&] {
    check_config(configPath);
    initialize();
  });
}

aclError aclFinalize() {
  return guarded("aclFinalize", [] { finalize(); });
}

// Codes of the runtime have no place in an aclnnStatus.
aclnnStatus aclnnInit(const char* configPath) {
  return guarded_aclnn("aclnnInit", [&] {
    try {
      check_config(configPath);
      initialize_if_not();
    } catch (const Failure& failure) {
      throw with_aclnn_code(failure, ACLNN_ERR_PARAM_INVALID);
    }
  });
}

aclnnStatus aclnnFinalize() {
  return guarded_aclnn("aclnnFinalize", [] { synchronize_all(); });
}

const char* aclGetRecentErrMsg() { return recent_message(); }

const char* aclrtGetSocName() {
  const char* name = nullptr;
  guarded("aclrtGetSocName", [&] { name = soc_name().c_str(); });
  return name;
}

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return guarded("aclrtGetVersion", [&] {
    require(majorVersion, "majorVersion");
    require(minorVersion, "minorVersion");
    require(patchVersion, "patchVersion");
    *majorVersion = kMajorVersion;
    *minorVersion = kMinorVersion;
    *patchVersion = kPatchVersion;
  });
}

// ---- devices -----------------------------------------------------------------------------------

aclError aclrtGetDeviceCount(uint32_t* count) {
  return guarded("aclrtGetDeviceCount", [&] {
    require(count, "count");
    *count = kDeviceCount;
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return guarded("aclrtSetDevice", [&] { set_current_context(default_context(deviceId)); });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return guarded("aclrtResetDevice", [&] {
    default_context(deviceId);
    synchronize_all();
    if (has_current_context() && is_default_context(*current_context())) {
      set_current_context(nullptr);
    }
  });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return guarded("aclrtGetDevice", [&] {
    require(deviceId, "deviceId");
    *deviceId = current_context()->device;
  });
}

// ---- contexts ----------------------------------------------------------------------------------

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return guarded("aclrtCreateContext", [&] {
    require(context, "context");
    default_context(deviceId);  // there is a device, and the library is initialised
    auto made = std::make_shared<Context>(deviceId);
    *context = Handles<Context>::all().add(made);
    set_current_context(std::move(made));
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return guarded("aclrtDestroyContext", [&] {
    const std::shared_ptr<Context> found = find_context(context);
    if (is_default_context(*found)) {
      throw Failure(ACL_ERROR_INVALID_PARAM, "context", "the default context of a device",
                    "expected one from aclrtCreateContext");
    }
    Handles<Context>::all().remove(context);
    found->is_alive = false;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return guarded("aclrtSetCurrentContext", [&] { set_current_context(find_context(context)); });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return guarded("aclrtGetCurrentContext", [&] {
    require(context, "context");
    *context = current_context().get();
  });
}

// ---- settings ----------------------------------------------------------------------------------

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return guarded("aclrtCtxSetSysParamOpt", [&] {
    const int flag = checked_flag(opt, value);
    current_context()->deterministic = flag;
  });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return guarded("aclrtCtxGetSysParamOpt", [&] {
    check_option(opt);
    require(value, "value");
    current_context();
    *value = is_deterministic() ? 1 : 0;
  });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return guarded("aclrtSetSysParamOpt",
                 [&] { process_deterministic() = checked_flag(opt, value); });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return guarded("aclrtGetSysParamOpt", [&] {
    check_option(opt);
    require(value, "value");
    *value = process_deterministic();
  });
}
