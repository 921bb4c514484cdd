// Streams, which are queues, and events, which are places in them.
#include <string>

#include "acl/acl_rt.h"
#include "acl/context.h"
#include "acl/failure.h"
#include "acl/handles.h"
#include "runtime/event.h"

using namespace backops;
using namespace backops::acl;

namespace {

std::shared_ptr<Event> find_event(aclrtEvent event, const char* argument) {
  require(event, argument);
  if (auto found = Handles<Event>::all().find(event)) return found;
  throw Failure(ACL_ERROR_RT_PARAM_INVALID, argument, "no event that is alive",
                "expected one from aclrtCreateEvent");
}

void create_stream(aclrtStream* stream) {
  require(stream, "stream");
  current_context();
  *stream = Handles<Stream>::all().add(std::make_shared<Stream>(Stream{create_queue()}));
}

}  // namespace

aclError aclrtSynchronizeDevice() {
  return guarded("aclrtSynchronizeDevice", [] {
    current_context();
    synchronize_all();
  });
}

// ---- streams -----------------------------------------------------------------------------------

aclError aclrtCreateStream(aclrtStream* stream) {
  return guarded("aclrtCreateStream", [&] { create_stream(stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  return guarded("aclrtCreateStreamWithConfig", [&] { create_stream(stream); });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return guarded("aclrtDestroyStream", [&] {
    require(stream, "stream");
    const std::shared_ptr<Stream> gone = Handles<Stream>::all().remove(stream);
    if (gone == nullptr) {
      throw Failure(ACL_ERROR_RT_PARAM_INVALID, "stream", "no stream that is alive",
                    "expected one from aclrtCreateStream");
    }
    gone->queue->synchronize();
  });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return guarded("aclrtSynchronizeStream", [&] { queue_of(stream)->synchronize(); });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return guarded("aclrtStreamWaitEvent",
                 [&] { find_event(event, "event")->delay(*queue_of(stream)); });
}

// ---- events ------------------------------------------------------------------------------------

aclError aclrtCreateEvent(aclrtEvent* event) {
  return guarded("aclrtCreateEvent", [&] {
    require(event, "event");
    current_context();
    *event = Handles<Event>::all().add(std::make_shared<Event>(/*with_timing=*/true));
  });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return guarded("aclrtDestroyEvent", [&] {
    find_event(event, "event");
    Handles<Event>::all().remove(event);
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return guarded("aclrtRecordEvent",
                 [&] { find_event(event, "event")->record(queue_of(stream).get()); });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return guarded("aclrtSynchronizeEvent", [&] { find_event(event, "event")->synchronize(); });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  return guarded("aclrtQueryEvent", [&] {
    const bool is_done = find_event(event, "event")->is_done();
    require(status, "status");
    *status = is_done ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return guarded("aclrtQueryEventStatus", [&] {
    const bool is_done = find_event(event, "event")->is_done();
    require(status, "status");
    *status = is_done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return guarded("aclrtEventElapsedTime", [&] {
    require(ms, "ms");
    const auto start = find_event(startEvent, "startEvent"), end = find_event(endEvent, "endEvent");
    if (!Event::elapsed(*start, *end, ms)) {
      throw Failure(ACL_ERROR_RT_PARAM_INVALID,
                    "startEvent or endEvent is not complete, expected events that were recorded "
                    "and synchronised");
    }
  });
}
