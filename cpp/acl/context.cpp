#include "acl/context.h"

#include <string>
#include <utility>

#include "acl/failure.h"
#include "acl/handles.h"
#include "acl/products.h"

namespace backops::acl {
namespace {

struct Process {
  std::mutex mutex;  // guards what follows
  bool is_initialized = false;
  bool had_acl_init = false;
  std::shared_ptr<Context> default_contexts[kDeviceCount];
};

// Never destroyed, like all that programs may use while they end.
Process& process() {
  static Process* const made = new Process;
  return *made;
}

QueueGroup& all_queues() {
  static QueueGroup* const group = new QueueGroup;
  return *group;
}

void begin(Process& process) {
  read_soc_name();
  current_product();
  process.is_initialized = true;
}

thread_local std::shared_ptr<Context> t_context;

}  // namespace

std::shared_ptr<Queue> Context::default_queue() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (default_queue_ == nullptr) default_queue_ = create_queue();
  return default_queue_;
}

void initialize() {
  const std::lock_guard<std::mutex> lock(process().mutex);
  if (process().had_acl_init) {
    throw Failure(ACL_ERROR_REPEAT_INITIALIZE, "called again, expected once before aclFinalize");
  }
  begin(process());
  process().had_acl_init = true;
}

void initialize_if_not() {
  const std::lock_guard<std::mutex> lock(process().mutex);
  if (!process().is_initialized) begin(process());
}

void finalize() {
  {
    const std::lock_guard<std::mutex> lock(process().mutex);
    if (!process().is_initialized) {
      throw Failure(ACL_ERROR_UNINITIALIZE, "called without aclInit or aclnnInit before");
    }
    process().is_initialized = process().had_acl_init = false;
    for (auto& context : process().default_contexts) context.reset();
  }
  synchronize_all();
  for (const auto& context : Handles<Context>::all().remove_all()) context->is_alive = false;
  t_context.reset();
}

bool has_current_context() { return t_context != nullptr && t_context->is_alive; }

std::shared_ptr<Context> current_context() {
  if (has_current_context()) return t_context;
  throw Failure(ACL_ERROR_RT_CONTEXT_NULL,
                "this thread has no context, expected aclrtSetDevice or aclrtSetCurrentContext "
                "before");
}

void set_current_context(std::shared_ptr<Context> context) { t_context = std::move(context); }

void check_device(int device_id) {
  if (device_id >= 0 && device_id < kDeviceCount) return;
  throw Failure(ACL_ERROR_RT_INVALID_DEVICEID, "deviceId", std::to_string(device_id),
                "expected 0: there is one device");
}

std::shared_ptr<Context> default_context(int device_id) {
  check_device(device_id);
  const std::lock_guard<std::mutex> lock(process().mutex);
  if (!process().is_initialized) {
    throw Failure(ACL_ERROR_UNINITIALIZE, "called without aclInit or aclnnInit before");
  }
  std::shared_ptr<Context>& context = process().default_contexts[device_id];
  if (context == nullptr) {
    auto made = std::make_shared<Context>(device_id);
    Handles<Context>::all().add(made);
    context = std::move(made);
  }
  return context;
}

bool is_default_context(const Context& context) {
  const std::lock_guard<std::mutex> lock(process().mutex);
  return process().default_contexts[context.device].get() == &context;
}

std::shared_ptr<Queue> create_queue() { return all_queues().create(); }

void synchronize_all() { all_queues().synchronize(); }

std::shared_ptr<Queue> queue_of(aclrtStream stream) {
  if (stream == nullptr) return current_context()->default_queue();
  if (const auto found = Handles<Stream>::all().find(stream)) return found->queue;
  throw Failure(ACL_ERROR_RT_PARAM_INVALID, "stream", "no stream that is alive",
                "expected one from aclrtCreateStream");
}

std::atomic<int>& process_deterministic() {
  static std::atomic<int> setting{0};
  return setting;
}

bool is_deterministic() {
  const int own = has_current_context() ? t_context->deterministic.load() : -1;
  return (own >= 0 ? own : process_deterministic().load()) != 0;
}

}  // namespace backops::acl
