// What threads work in: whether the library is initialised, contexts, and the streams they have.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "acl/acl_base.h"
#include "runtime/queue.h"

namespace backops::acl {

constexpr int kDeviceCount = 1;

// What an aclrtStream points to.
struct Stream {
  std::shared_ptr<Queue> queue;
};

// What an aclrtContext points to.
class Context {
 public:
  explicit Context(int device_id) : device(device_id) {}

  const int device;
  std::atomic<bool> is_alive{true};
  std::atomic<int> deterministic{-1};  // 0, 1, or as the process does

  std::shared_ptr<Queue> default_queue();

 private:
  std::mutex mutex_;
  std::shared_ptr<Queue> default_queue_;  // made when it is first used
};

// All throw Failure where a call is refused.
void initialize();         // aclInit: once
void initialize_if_not();  // aclnnInit
void finalize();

// The context of the calling thread. Without one: RT_CONTEXT_NULL.
std::shared_ptr<Context> current_context();
bool has_current_context();
void set_current_context(std::shared_ptr<Context> context);

// The default context of a device, made when it is first asked for.
std::shared_ptr<Context> default_context(int device_id);
bool is_default_context(const Context& context);
void check_device(int device_id);

// All queues.
std::shared_ptr<Queue> create_queue();
void synchronize_all();

// The queue of a stream; of the default stream for NULL.
std::shared_ptr<Queue> queue_of(aclrtStream stream);

// The setting of the process, and what counts for the calling thread.
std::atomic<int>& process_deterministic();
bool is_deterministic();

}  // namespace backops::acl
